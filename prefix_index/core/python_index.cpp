// The index as a Python object: arguments in, results out.

#include "python_index.hpp"

namespace dovecote::python {
namespace {

nb::tuple to_tuple(const std::vector<Place>& places) {
  const nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(places.size())));
  for (std::size_t at = 0; at < places.size(); ++at)
    PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(at), PyLong_FromUnsignedLongLong(places[at]));
  return nb::borrow<nb::tuple>(made);
}

nb::tuple to_tuple(const Delta& delta) {
  return nb::make_tuple(to_tuple(delta.stored), to_tuple(delta.removed), delta.orphaned, delta.unknown_removals);
}

// Reads a chain's hashes one by one as they are asked for: a match looks at few of them.
struct TuplePlaces {
  PyObject* hashes;
  Place operator()(std::size_t at) const {
    return PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(hashes, static_cast<Py_ssize_t>(at)));
  }
};

}  // namespace

std::uint32_t PyIndex::attach(nb::object target, const std::string& model, bool is_refreshed, bool is_bigram,
                              std::uint64_t secret, std::size_t max_orphans) {
  const auto held = lock();
  const std::uint32_t number = index_.attach({model, is_refreshed, is_bigram, secret, max_orphans});
  if (targets_.size() <= number) targets_.resize(number + 1);
  targets_[number] = std::move(target);
  return number;
}

std::size_t PyIndex::detach(std::uint32_t holder) {
  const auto held = lock();
  if (!index_.has_holder(holder)) return 0;
  const std::size_t counted = index_.holder(holder).count();
  {
    nb::gil_scoped_release released;
    index_.detach(holder);
  }
  return counted;
}

std::size_t PyIndex::clear(std::uint32_t holder) {
  const auto held = lock();
  nb::gil_scoped_release released;
  return index_.has_holder(holder) ? index_.clear(holder) : 0;
}

std::size_t PyIndex::doubt(std::uint32_t holder) {
  const auto held = lock();
  nb::gil_scoped_release released;
  return index_.has_holder(holder) ? index_.doubt(holder) : 0;
}

nb::tuple PyIndex::apply_stored(std::uint32_t holder, nb::handle event) {
  const auto held = lock();
  batch_.clear();
  delta_.clear();
  const Event read = read_stored(event, batch_);
  if (index_.has_holder(holder)) index_.apply(holder, batch_, read, delta_);
  return to_tuple(delta_);
}

nb::tuple PyIndex::apply_removed(std::uint32_t holder, nb::handle event) {
  const auto held = lock();
  batch_.clear();
  delta_.clear();
  const Event read = read_removed(event, batch_);
  if (index_.has_holder(holder)) index_.apply(holder, batch_, read, delta_);
  return to_tuple(delta_);
}

nb::tuple PyIndex::store_places(std::uint32_t holder, nb::handle places, std::optional<std::uint64_t> parent,
                                std::uint32_t block_tokens) {
  const auto held = lock();
  batch_.clear();
  delta_.clear();
  Event event;
  event.kind = EventKind::kStored;
  event.name_count = static_cast<std::uint32_t>(read_numbers(places, batch_.names, event.names_at, read_place));
  event.has_parent = parent.has_value();
  event.parent = parent.value_or(0);
  event.block_tokens = block_tokens;
  if (index_.has_holder(holder)) index_.store_places(holder, batch_, event, delta_);
  return to_tuple(delta_);
}

nb::tuple PyIndex::remove_places(std::uint32_t holder, nb::handle places) {
  const auto held = lock();
  batch_.clear();
  delta_.clear();
  Event event;
  event.kind = EventKind::kRemoved;
  event.name_count = static_cast<std::uint32_t>(read_numbers(places, batch_.names, event.names_at, read_place));
  if (index_.has_holder(holder)) index_.apply(holder, batch_, event, delta_);
  return to_tuple(delta_);
}

nb::tuple PyIndex::apply_payloads(std::uint32_t holder, nb::list payloads, std::size_t first, bool with_changes) {
  std::vector<nb::object> kept;
  std::vector<std::string_view> views;
  kept.reserve(payloads.size());
  views.reserve(payloads.size());
  for (std::size_t at = first; at < payloads.size(); ++at) {
    kept.emplace_back(payloads[at]);
    views.push_back(view(kept.back()));
  }
  Outcome outcome;
  std::size_t next = 0;
  {
    const auto held = lock();
    nb::gil_scoped_release released;
    const bool is_known = index_.has_holder(holder);
    for (; is_known && next < views.size() && index_.apply_payload(holder, views[next], outcome); ++next) {
      if (with_changes) continue;
      outcome.delta.stored.clear();
      outcome.delta.removed.clear();
    }
    if (!is_known) next = views.size();
  }
  return nb::make_tuple(first + next, outcome.batches, outcome.kinds[0], outcome.kinds[1], outcome.kinds[2],
                        outcome.delta.orphaned, outcome.delta.unknown_removals, to_tuple(outcome.delta.stored),
                        to_tuple(outcome.delta.removed));
}

nb::dict PyIndex::find_reuse(nb::tuple hashes, std::size_t limit, std::size_t block_tokens) {
  if (limit > hashes.size()) throw nb::value_error("more blocks are asked for than the chain has");
  nb::dict found;
  const auto held = lock();
  std::size_t blocks_before = 0;
  nb::object tokens;
  index_.match(limit, TuplePlaces{hashes.ptr()}, [&](std::uint32_t holder, std::size_t blocks) {
    if (blocks != blocks_before) tokens = nb::steal(PyLong_FromSize_t(blocks * block_tokens));
    blocks_before = blocks;
    if (PyDict_SetItem(found.ptr(), targets_[holder].ptr(), tokens.ptr()) != 0) throw nb::python_error();
  });
  if (PyErr_Occurred()) throw nb::python_error();
  return found;
}

std::size_t PyIndex::match_count(nb::tuple hashes, std::size_t limit, std::size_t repeats) {
  const auto held = lock();
  std::size_t blocks_in_all = 0;
  for (std::size_t at = 0; at < repeats; ++at)
    index_.match(std::min(limit, hashes.size()), TuplePlaces{hashes.ptr()},
                 [&](std::uint32_t, std::size_t blocks) { blocks_in_all += blocks; });
  if (PyErr_Occurred()) throw nb::python_error();
  return blocks_in_all;
}

std::size_t PyIndex::block_count(std::uint32_t holder) {
  const auto held = lock();
  return index_.has_holder(holder) ? index_.holder(holder).count() : 0;
}

std::vector<std::uint32_t> PyIndex::block_sizes() {
  const auto held = lock();
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t number = 0; number < targets_.size(); ++number)
    if (index_.has_holder(number))
      for (const std::uint32_t size : index_.holder(number).block_sizes()) sizes.push_back(size);
  return sizes;
}

bool PyIndex::is_modelled(std::uint32_t holder) {
  const auto held = lock();
  return index_.has_holder(holder) && index_.holder(holder).is_modelled();
}

nb::dict PyIndex::counters() {
  const auto held = lock();
  nb::dict counters;
  counters["entries"] = index_.entry_count();
  counters["parked_entries"] = index_.parked_count();
  counters["nodes"] = index_.tree().node_count();
  counters["holder_sets"] = index_.tree().sets().count();
  counters["evicted_entries"] = index_.evicted();
  counters["unsettled_edges"] = index_.tree().unsettled_count();
  counters["size_bytes"] = index_.bytes();
  return counters;
}

std::string PyIndex::find_contradiction() {
  const auto held = lock();
  return index_.find_contradiction();
}

nb::object decode_to_python(nb::bytes payload) {
  Batch batch;
  if (!decode_batch(view(payload), batch)) return nb::none();
  nb::list events;
  const auto to_object = [](const std::optional<std::string_view>& text) -> nb::object {
    return text ? nb::object(nb::bytes(text->data(), text->size())) : nb::none();
  };
  for (const Event& event : batch.events) {
    nb::list names, tokens, keys;
    for (std::size_t at = 0; at < event.name_count; ++at) names.append(batch.names.data()[event.names_at + at]);
    for (std::size_t at = 0; at < event.token_count; ++at) tokens.append(batch.tokens.data()[event.tokens_at + at]);
    if (event.keys)
      for (const BlockKeys& block : batch.keys[*event.keys]) {
        nb::list read;
        for (const ContentKey& key : block)
          read.append(nb::make_tuple(static_cast<int>(key.kind), nb::bytes(key.data.data(), key.data.size())));
        keys.append(read);
      }
    events.append(nb::make_tuple(static_cast<int>(event.kind), names,
                                 event.has_parent ? nb::object(nb::int_(event.parent)) : nb::none(), tokens,
                                 event.block_tokens, event.medium, event.group.is_given, event.group.is_negative,
                                 event.group.bits, to_object(event.group_kind), to_object(event.lora_name),
                                 to_object(event.lora_id), to_object(event.cache_salt), keys));
  }
  return events;
}

}  // namespace dovecote::python
