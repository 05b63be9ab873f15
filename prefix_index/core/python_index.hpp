// The index as a Python object: one lock, and the interpreter's lock released while bytes are read.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <optional>
#include <vector>

#include "index.hpp"
#include "python_events.hpp"

namespace dovecote::python {

class PyIndex {
 public:
  explicit PyIndex(std::size_t max_entries) : index_(max_entries) {}

  std::uint32_t attach(nb::object target, const std::string& model, bool is_refreshed, bool is_bigram,
                       std::uint64_t secret, std::size_t max_orphans);
  std::size_t detach(std::uint32_t holder);
  std::size_t clear(std::uint32_t holder);
  std::size_t doubt(std::uint32_t holder);
  // One event: (stored, removed, orphaned, unknown removals).
  nb::tuple apply_stored(std::uint32_t holder, nb::handle event);
  nb::tuple apply_removed(std::uint32_t holder, nb::handle event);
  // Ready canonical hashes.
  nb::tuple store_places(std::uint32_t holder, nb::handle places, std::optional<std::uint64_t> parent,
                         std::uint32_t block_tokens);
  nb::tuple remove_places(std::uint32_t holder, nb::handle places);
  // Payloads from `first` on until one must be read elsewhere:
  // (next, batches, stores, removals, clears, orphaned, unknown removals, stored, removed).
  nb::tuple apply_payloads(std::uint32_t holder, nb::list payloads, std::size_t first, bool with_changes);
  nb::dict find_reuse(nb::tuple hashes, std::size_t limit, std::size_t block_tokens);
  // Blocks a holder, by its number, without a Python object for either: for measuring, and for callers in C.
  std::size_t match_count(nb::tuple hashes, std::size_t limit, std::size_t repeats);

  std::size_t block_count(std::uint32_t holder);
  std::vector<std::uint32_t> block_sizes();
  bool is_modelled(std::uint32_t holder);
  nb::dict counters();
  std::string find_contradiction();

 private:
  // Takes the index's lock; never waits for it with the interpreter's lock held.
  std::unique_lock<std::mutex> lock() {
    std::unique_lock<std::mutex> held(mutex_, std::try_to_lock);
    if (!held.owns_lock()) {
      nb::gil_scoped_release released;
      held.lock();
    }
    return held;
  }

  std::mutex mutex_;
  Index index_;
  Batch batch_;
  Delta delta_;
  //: Who a holder's number stands for.
  std::vector<nb::object> targets_;
};

// Events of a payload as plain tuples, None where `wire.dialects` must read it: for tests.
nb::object decode_to_python(nb::bytes payload);

}  // namespace dovecote::python
