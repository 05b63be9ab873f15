// Native module of prompts: a body looked over, and its text hashed in chunks.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "chunks.hpp"
#include "scan.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using dovecote::text::Chunker;
using dovecote::text::Member;
using dovecote::text::Piece;

namespace {

// Bytes of an object for as long as it lives.
class View {
 public:
  explicit View(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() { PyBuffer_Release(&buffer_); }

  Piece piece() const { return {static_cast<const unsigned char*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)}; }

 private:
  Py_buffer buffer_;
};

std::vector<std::size_t> find_roles(nb::handle text, std::size_t most) {
  const View view(text);
  return dovecote::text::find_roles(view.piece().bytes, view.piece().size, most);
}

nb::object name_of(const char* text, const Member& member) {
  PyObject* name =
      PyUnicode_DecodeUTF8(text + member.name, static_cast<Py_ssize_t>(member.name_end - member.name), nullptr);
  if (name == nullptr) throw nb::python_error();
  return nb::steal(name);
}

nb::object view_of(nb::handle whole, const Member& member) {
  const nb::object from = nb::int_(member.value), to = nb::int_(member.value_end);
  const nb::object slice = nb::steal(PySlice_New(from.ptr(), to.ptr(), nullptr));
  PyObject* view = PyObject_GetItem(whole.ptr(), slice.ptr());
  if (view == nullptr) throw nb::python_error();
  return nb::steal(view);
}

nb::object look_over(nb::bytes data) {
  std::vector<Member> members;
  if (!dovecote::text::scan(static_cast<const unsigned char*>(data.data()), data.size(), members)) return nb::none();
  const nb::object whole = nb::steal(PyMemoryView_FromObject(data.ptr()));
  nb::dict found;
  for (const Member& member : members) found[name_of(data.c_str(), member)] = view_of(whole, member);
  return found;
}

nb::bytes chain_chunks(nb::tuple pieces, std::size_t chunk_bytes, std::uint64_t seed, std::size_t max_chunks) {
  if (chunk_bytes == 0) throw nb::value_error("chunk_bytes must be 1 or more");
  Chunker chunker(chunk_bytes, seed, max_chunks);
  static constexpr unsigned char kBetween = 0;
  bool is_first = true;
  for (const nb::handle each : pieces) {
    if (!is_first) chunker.read({&kBetween, 1});
    is_first = false;
    chunker.read(View(each).piece());
  }
  const std::vector<std::uint64_t>& hashes = chunker.hashes();
  return nb::bytes(reinterpret_cast<const char*>(hashes.data()), 8 * hashes.size());
}

}  // namespace

NB_MODULE(_text, module) {
  // What other modules still refer to when the interpreter ends is no leak.
  nb::set_leak_warnings(false);
  module.doc() = "Bodies of requests: their syntax and the chunks of their text, compiled.";
  module.def("look_over", &look_over, "data"_a);
  module.def("find_roles", &find_roles, "text"_a, "most"_a);
  module.def("chain_chunks", &chain_chunks, "pieces"_a, "chunk_bytes"_a, "seed"_a, "max_chunks"_a);
}
