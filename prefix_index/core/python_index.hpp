// The index as a Python object: one lock, and the interpreter's lock released while bytes are read.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "index.hpp"
#include "python_events.hpp"

namespace dovecote::python {

//: Where the interpreter has begun to end when this thread wants it back, the thread stays here for good: the
//: interpreter would end it by an exception that may not pass through C++.
template <typename Take>
auto take_interpreter(Take take) noexcept {
  const auto stay = [] { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); };
  try {
#if PY_VERSION_HEX >= 0x030D0000
    if (Py_IsFinalizing()) stay();
#else
    if (_Py_IsFinalizing()) stay();
#endif
    return take();
  } catch (...) {
    stay();
  }
  std::abort();
}

//: Others may run Python meanwhile.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    take_interpreter([this] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

//: Python may be run here, whoever ran it before.
class Locked {
 public:
  Locked() : state_(take_interpreter([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

class PyIndex {
 public:
  // `find_component(kind, number, window)` gives (rule, recovery, window, id) of a group, None where its rule is not
  // known; `find_start(id, end_tokens)` asks a component of a rule of its own.
  PyIndex(std::size_t max_blocks, std::size_t max_holder_blocks, nb::object find_component, nb::object find_start);

  std::uint32_t attach(nb::object target, const std::string& model, bool is_refreshed, bool is_bigram,
                       std::uint64_t secret, std::uint64_t name_key, std::size_t max_orphans, std::optional<std::string> host,
                       const std::vector<std::string>& pools, nb::sequence layout);
  std::size_t detach(std::uint32_t holder);
  std::size_t clear(std::uint32_t holder);
  std::size_t doubt(std::uint32_t holder);
  std::size_t drop_pool(const std::string& name);
  // One event: (stored, removed, touched, orphaned, unknown removals, refused).
  nb::tuple apply_stored(std::uint32_t holder, nb::handle event);
  nb::tuple apply_removed(std::uint32_t holder, nb::handle event);
  nb::tuple apply_cleared(std::uint32_t holder);
  // Payloads from `first` on until one must be read elsewhere:
  // (next, batches, stores, removals, clears, orphaned, unknown removals, refused, stored, removed).
  nb::tuple apply_payloads(std::uint32_t holder, nb::list payloads, std::size_t first, bool with_changes);
  // Payloads up to the first that must be read elsewhere, or that names another rank than `rank`: (how many, stores,
  // removals, clears, orphaned, unknown removals, refused, stored, removed, gained, lost), the last four as places in
  // the order of the changes.
  nb::tuple apply_run(std::uint32_t holder, nb::list payloads, std::optional<std::int64_t> rank);
  // Chains are tuples (block tokens, hashes, tokens of the whole prompt); the first of a size counts.
  nb::dict find_reuse(nb::list chains, std::size_t limit_tokens);
  // (reach, reused tokens, window tokens, replayed tokens, ((group, component, reach, tokens), ...)) each.
  nb::list find_alternatives(std::uint32_t holder, nb::list chains, std::size_t limit_tokens);
  std::size_t correct(std::uint32_t holder, nb::list chains, std::size_t limit_tokens, std::size_t cached_tokens);
  // Blocks a holder, by its number, without a Python object for either: for measuring, and for callers in C.
  std::size_t match_count(nb::tuple hashes, std::size_t limit, std::size_t repeats);
  // Runs of at most `max_records`: (block tokens, tier, group, kind, window, is doubted, and five columns of bytes,
  // little-endian: names and parents and places of 8 bytes, copies and positions of 4).
  nb::list dump(std::uint32_t holder, std::size_t max_records);
  std::size_t load(std::uint32_t holder, nb::tuple run);

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
      const Unlocked released;
      held.lock();
    }
    return held;
  }

  nb::tuple apply_one(std::uint32_t holder, const Event& event);
  Registry make_registry(nb::object find_component, nb::object find_start);

  std::mutex mutex_;
  Index index_;
  Batch batch_;
  Delta delta_;
  //: Holders that the last match found: about as many as the next will.
  std::size_t found_before_ = 0;
  //: Who a holder's number stands for.
  struct Named {
    nb::object object;
    Py_hash_t hash;
  };
  std::vector<Named> targets_;
};

// Events of a payload as plain tuples, None where `wire.dialects` must read it: for tests.
nb::object decode_to_python(nb::bytes payload);

}  // namespace dovecote::python
