// Native module of prefix_index: block hashing and the index. Everything that takes long runs with
// the interpreter's lock released.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "chain.hpp"
#include "python_index.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using dovecote::python::PyIndex;

namespace {

using Tokens = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::list hash_blocks(const std::uint32_t* tokens, std::size_t count, std::size_t block_tokens, std::uint64_t seed) {
  if (block_tokens == 0) throw nb::value_error("block_tokens must be 1 or more");
  if (block_tokens > count) return {};
  std::vector<std::uint64_t> hashes(count / block_tokens);
  {
    const dovecote::python::Unlocked released;
    dovecote::chain_blocks(tokens, hashes.size(), block_tokens, seed, hashes.data());
  }
  const nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(hashes.size())));
  for (std::size_t at = 0; at < hashes.size(); ++at)
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(at), PyLong_FromUnsignedLongLong(hashes[at]));
  return nb::borrow<nb::list>(list);
}

nb::list block_hashes(const Tokens& tokens, std::size_t block_tokens, std::uint64_t seed) {
  return hash_blocks(tokens.data(), tokens.shape(0), block_tokens, seed);
}

// The same of a list or tuple of integers.
nb::list block_hashes_of(nb::handle token_ids, std::size_t block_tokens, std::uint64_t seed) {
  dovecote::Room<std::uint32_t> tokens;
  std::size_t at = 0;
  const std::size_t count = dovecote::python::read_numbers(token_ids, tokens, at, dovecote::python::read_token);
  return hash_blocks(tokens.data(), count, block_tokens, seed);
}

std::uint64_t xxh3_64(nb::bytes data, std::uint64_t seed) {
  return dovecote::xxh3::hash(reinterpret_cast<const unsigned char*>(data.data()), data.size(), seed);
}

}  // namespace

NB_MODULE(_core, module) {
  // What other modules still refer to when the interpreter ends is no leak.
  nb::set_leak_warnings(false);
  module.doc() = "Chained block hashing and the prefix index, compiled.";
  module.def("block_hashes", &block_hashes, "tokens"_a, "block_tokens"_a, "seed"_a);
  module.def("block_hashes_of", &block_hashes_of, "token_ids"_a, "block_tokens"_a, "seed"_a);
  module.def("xxh3_64", &xxh3_64, "data"_a, "seed"_a);
  module.def("decode", &dovecote::python::decode_to_python, "payload"_a);
  module.def("to_name", &dovecote::python::read_name, "name"_a);
  module.def("to_tier", [](const std::string& word) { return static_cast<int>(dovecote::to_tier(word)); }, "word"_a);
  nb::class_<PyIndex>(module, "Index")
      .def(nb::init<std::size_t, std::size_t, nb::object, nb::object>(), "max_blocks"_a, "max_holder_blocks"_a,
           "find_component"_a, "find_start"_a)
      .def("attach", &PyIndex::attach, "target"_a, "model"_a, "is_refreshed"_a, "is_bigram"_a, "secret"_a,
           "name_key"_a, "max_orphans"_a, "host"_a.none(), "pools"_a, "layout"_a)
      .def("detach", &PyIndex::detach, "holder"_a)
      .def("clear", &PyIndex::clear, "holder"_a)
      .def("doubt", &PyIndex::doubt, "holder"_a)
      .def("apply_stored", &PyIndex::apply_stored, "holder"_a, "event"_a)
      .def("apply_removed", &PyIndex::apply_removed, "holder"_a, "event"_a)
      .def("apply_cleared", &PyIndex::apply_cleared, "holder"_a)
      .def("drop_pool", &PyIndex::drop_pool, "name"_a)
      .def("dump", &PyIndex::dump, "holder"_a, "max_records"_a)
      .def("load", &PyIndex::load, "holder"_a, "run"_a)
      .def("find_alternatives", &PyIndex::find_alternatives, "holder"_a, "chains"_a, "limit_tokens"_a)
      .def("correct", &PyIndex::correct, "holder"_a, "chains"_a, "limit_tokens"_a, "cached_tokens"_a)
      .def("apply_payloads", &PyIndex::apply_payloads, "holder"_a, "payloads"_a, "first"_a, "with_changes"_a)
      .def("apply_run", &PyIndex::apply_run, "holder"_a, "payloads"_a, "rank"_a.none())
      .def("find_reuse", &PyIndex::find_reuse, "chains"_a, "limit_tokens"_a)
      .def("match_count", &PyIndex::match_count, "hashes"_a, "limit"_a, "repeats"_a)
      .def("block_count", &PyIndex::block_count, "holder"_a)
      .def("block_sizes", &PyIndex::block_sizes)
      .def("is_modelled", &PyIndex::is_modelled, "holder"_a)
      .def("counters", &PyIndex::counters)
      .def("find_contradiction", &PyIndex::find_contradiction);
}
