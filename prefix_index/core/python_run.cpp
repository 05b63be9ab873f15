// Payloads of one rank in a row, with all that its stream reports of them.

#include <vector>

#include "python_index.hpp"

namespace dovecote::python {
namespace {

// A tuple: what it holds is of no interest to the garbage collector, which would look through a list every time.
nb::object to_tuple(const std::vector<Place>& places) {
  const nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(places.size())));
  if (!made.is_valid()) throw nb::python_error();
  for (std::size_t at = 0; at < places.size(); ++at)
    PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(at), PyLong_FromUnsignedLongLong(places[at]));
  return made;
}

bool is_of(const OptionalNumber& told, const std::optional<std::int64_t>& rank) {
  if (!told.is_given) return true;
  return rank && told.is_negative == (*rank < 0) && told.bits == static_cast<std::uint64_t>(*rank);
}

// What a run changed; places that stores touched were gained, those that removals touched were lost.
struct Run {
  Outcome outcome;
  std::vector<Place> gained, lost;

  void sort_touched(EventKind kind) {
    std::vector<Place>& touched = outcome.delta.touched;
    std::vector<Place>& to = kind == EventKind::kStored ? gained : lost;
    to.insert(to.end(), touched.begin(), touched.end());
    touched.clear();
  }
};

}  // namespace

nb::tuple PyIndex::apply_run(std::uint32_t holder, nb::list payloads, std::optional<std::int64_t> rank) {
  std::vector<nb::object> kept;
  std::vector<std::string_view> views;
  kept.reserve(payloads.size());
  views.reserve(payloads.size());
  for (const nb::handle payload : payloads) views.push_back(view(kept.emplace_back(nb::borrow(payload))));
  Run run;
  std::size_t next = 0;
  {
    const Unlocked released;
    // Given back before the interpreter's lock is waited for, so that nobody waits for both.
    const std::lock_guard held(mutex_);
    if (!index_.has_holder(holder)) views.clear();
    for (; next < views.size() && decode_batch(views[next], batch_) && is_of(batch_.dp_rank, rank); ++next)
      for (const Event& event : batch_.events) {
        ++run.outcome.kinds[static_cast<std::size_t>(event.kind)];
        index_.apply(holder, batch_, event, run.outcome.delta);
        run.sort_touched(event.kind);
      }
  }
  const Delta& delta = run.outcome.delta;
  const auto& kinds = run.outcome.kinds;
  return nb::make_tuple(next, kinds[0], kinds[1], kinds[2], delta.orphaned, delta.unknown_removals, delta.refused,
                        to_tuple(delta.stored), to_tuple(delta.removed), to_tuple(run.gained), to_tuple(run.lost));
}

}  // namespace dovecote::python
