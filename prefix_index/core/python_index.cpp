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
  return nb::make_tuple(to_tuple(delta.stored), to_tuple(delta.removed), to_tuple(delta.touched), delta.orphaned,
                        delta.unknown_removals, delta.refused);
}

// Reads a chain's hashes one by one as they are asked for: a match looks at few of them.
Place read_hash(const void* hashes, std::size_t at) {
  PyObject* tuple = static_cast<PyObject*>(const_cast<void*>(hashes));
  return PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(at)));
}

// A dictionary with room for so many, where the interpreter lets ask for it.
nb::dict make_dict(std::size_t size) {
#if PY_VERSION_HEX < 0x030D0000
  return nb::steal<nb::dict>(_PyDict_NewPresized(static_cast<Py_ssize_t>(size)));
#else
  return {};
#endif
}

// An item whose key's hash is known.
int set_item(const nb::dict& to, const nb::object& key, Py_hash_t hash, nb::handle value) {
#if PY_VERSION_HEX < 0x030D0000
  return _PyDict_SetItem_KnownHash(to.ptr(), key.ptr(), value.ptr(), hash);
#else
  return hash == -1 ? -1 : PyDict_SetItem(to.ptr(), key.ptr(), value.ptr());
#endif
}

struct TuplePlaces {
  PyObject* hashes;
  Place operator()(std::size_t at) const { return read_hash(hashes, at); }
};

Chains read_chains(const nb::list& chains) {
  Chains read;
  for (const nb::handle chain : chains) {
    const nb::object hashes = chain[1];
    if (!PyTuple_Check(hashes.ptr())) throw nb::type_error("hashes must be a tuple");
    read.add({nb::cast<std::uint32_t>(chain[0]), nb::len(hashes), hashes.ptr(), read_hash});
  }
  return read;
}

Component read_component(const nb::object& told) {
  if (told.is_none()) return {};
  return {static_cast<Rule>(nb::cast<int>(told[0])), static_cast<Recovery>(nb::cast<int>(told[1])),
          nb::cast<std::uint64_t>(told[2]), nb::cast<std::uint32_t>(told[3])};
}

}  // namespace

Registry PyIndex::make_registry(nb::object find_component, nb::object find_start) {
  Registry registry;
  registry.find = [find_component](const std::optional<std::string_view>& kind, const OptionalNumber& group,
                                   const OptionalNumber& window) {
    const Locked acquired;
    const nb::object word = to_python(kind ? std::optional<std::string>(*kind) : std::nullopt);
    return read_component(find_component(word, to_python(group), to_python(window)));
  };
  registry.find_foreign_start = [find_start](std::uint32_t id, std::uint64_t end_tokens) {
    const Locked acquired;
    return nb::cast<std::uint64_t>(find_start(id, end_tokens));
  };
  return registry;
}

PyIndex::PyIndex(std::size_t max_blocks, std::size_t max_holder_blocks, nb::object find_component,
                 nb::object find_start)
    : index_(max_blocks, max_holder_blocks, make_registry(std::move(find_component), std::move(find_start))) {}

std::uint32_t PyIndex::attach(nb::object target, const std::string& model, bool is_refreshed, bool is_bigram,
                              std::uint64_t secret, std::uint64_t name_key, std::size_t max_orphans, std::optional<std::string> host,
                              const std::vector<std::string>& pools, nb::sequence layout) {
  std::vector<DeclaredGroup> groups;
  for (const nb::handle group : layout)
    groups.push_back({to_utf8(group[0]), read_number(group[1]), nb::cast<std::uint64_t>(group[2]),
                      nb::cast<bool>(group[3])});
  const auto held = lock();
  const std::uint32_t number = index_.attach(
      {model, is_refreshed, is_bigram, secret, name_key, max_orphans, std::move(host), std::move(groups)}, pools);
  if (targets_.size() <= number) targets_.resize(number + 1);
  const Py_hash_t hash = PyObject_Hash(target.ptr());
  if (hash == -1) throw nb::python_error();
  targets_[number] = {std::move(target), hash};
  return number;
}

std::size_t PyIndex::detach(std::uint32_t holder) {
  const auto held = lock();
  if (!index_.has_holder(holder)) return 0;
  const std::size_t counted = index_.holder(holder).count();
  {
    const Unlocked released;
    index_.detach(holder);
  }
  return counted;
}

std::size_t PyIndex::clear(std::uint32_t holder) {
  const auto held = lock();
  const Unlocked released;
  return index_.has_holder(holder) ? index_.clear(holder) : 0;
}

std::size_t PyIndex::doubt(std::uint32_t holder) {
  const auto held = lock();
  const Unlocked released;
  return index_.has_holder(holder) ? index_.doubt(holder) : 0;
}

std::size_t PyIndex::drop_pool(const std::string& name) {
  const auto held = lock();
  const Unlocked released;
  return index_.drop_pool(name);
}

nb::tuple PyIndex::apply_one(std::uint32_t holder, const Event& event) {
  if (index_.has_holder(holder)) index_.apply(holder, batch_, event, delta_);
  return to_tuple(delta_);
}

nb::tuple PyIndex::apply_stored(std::uint32_t holder, nb::handle event) {
  const auto held = lock();
  batch_.clear();
  delta_.clear();
  return apply_one(holder, read_stored(event, batch_));
}

nb::tuple PyIndex::apply_removed(std::uint32_t holder, nb::handle event) {
  const auto held = lock();
  batch_.clear();
  delta_.clear();
  return apply_one(holder, read_removed(event, batch_));
}

nb::tuple PyIndex::apply_cleared(std::uint32_t holder) {
  const auto held = lock();
  batch_.clear();
  delta_.clear();
  return apply_one(holder, {});
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
    const Unlocked released;
    const bool is_known = index_.has_holder(holder);
    for (; is_known && next < views.size() && index_.apply_payload(holder, views[next], outcome); ++next) {
      if (!with_changes) outcome.delta.clear_places();
    }
    if (!is_known) next = views.size();
  }
  return nb::make_tuple(first + next, outcome.batches, outcome.kinds[0], outcome.kinds[1], outcome.kinds[2],
                        outcome.delta.orphaned, outcome.delta.unknown_removals, outcome.delta.refused,
                        to_tuple(outcome.delta.stored), to_tuple(outcome.delta.removed));
}

nb::dict PyIndex::find_reuse(nb::list chains, std::size_t limit_tokens) {
  const auto held = lock();
  const nb::dict found = make_dict(found_before_);
  // Holders that anchored slots do not settle, and how far full attention goes.
  std::map<std::uint32_t, std::uint64_t> others;
  const auto put = [&](std::uint32_t holder, nb::handle tokens) {
    const Named& target = targets_[holder];
    if (set_item(found, target.object, target.hash, tokens) != 0) throw nb::python_error();
  };
  for (const nb::handle chain : chains) {
    const std::uint64_t block_tokens = nb::cast<std::uint64_t>(chain[0]);
    const nb::object hashes = chain[1];
    if (!PyTuple_Check(hashes.ptr()) || block_tokens == 0) throw nb::value_error("hashes must be a tuple of blocks");
    // A prompt's last token is always computed.
    const auto token_count = nb::cast<std::int64_t>(chain[2]);
    const std::size_t limit =
        token_count < 1 ? 0 : std::min<std::uint64_t>(nb::len(hashes), (token_count - 1) / block_tokens);
    std::size_t blocks_before = 0;
    nb::object tokens;
    index_.match(limit, TuplePlaces{hashes.ptr()}, [&](std::uint32_t holder, std::size_t blocks) {
      if (!index_.is_plain(holder)) return static_cast<void>(others.emplace(holder, blocks * block_tokens));
      if (blocks != blocks_before) tokens = nb::steal(PyLong_FromSize_t(blocks * block_tokens));
      blocks_before = blocks;
      put(holder, tokens);
    });
  }
  if (!others.empty() || index_.has_rootless())
    index_.match_hybrid(read_chains(chains), limit_tokens, others, [&](std::uint32_t holder, std::uint64_t tokens) {
      put(holder, nb::steal(PyLong_FromUnsignedLongLong(tokens)));
    });
  found_before_ = nb::len(found);
  if (PyErr_Occurred()) throw nb::python_error();
  return found;
}

nb::list PyIndex::find_alternatives(std::uint32_t holder, nb::list chains, std::size_t limit_tokens) {
  nb::list told;
  const auto held = lock();
  if (!index_.has_holder(holder)) return told;
  for (const Alternative& one : index_.find_alternatives(holder, read_chains(chains), limit_tokens)) {
    nb::list loads;
    for (const Load& load : one.loads)
      loads.append(nb::make_tuple(to_python(load.number), load.component, static_cast<int>(load.source), load.tokens));
    told.append(nb::make_tuple(static_cast<int>(one.reach), one.reuse_tokens, one.window_tokens, one.replay_tokens,
                               loads));
  }
  if (PyErr_Occurred()) throw nb::python_error();
  return told;
}

std::size_t PyIndex::correct(std::uint32_t holder, nb::list chains, std::size_t limit_tokens,
                             std::size_t cached_tokens) {
  const auto held = lock();
  if (!index_.has_holder(holder)) return 0;
  const std::size_t believed = index_.correct(holder, read_chains(chains), limit_tokens, cached_tokens);
  if (PyErr_Occurred()) throw nb::python_error();
  return believed;
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
  counters["steps"] = index_.tree().steps();
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
                                 event.block_tokens, static_cast<int>(event.tier), event.group.is_given, event.group.is_negative,
                                 event.group.bits, to_object(event.group_kind), to_object(event.lora_name),
                                 to_object(event.lora_id), to_object(event.cache_salt), keys, to_python(event.window)));
  }
  return events;
}

}  // namespace dovecote::python
