// Native module of header lines: collected, filtered, looked through and written out, each in one call for a head.
//
// Lines are lists of pairs of bytes, as the rest of the data plane has them.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lines.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using dovecote::lines::Framing;
using dovecote::lines::LeftOut;
using dovecote::lines::Line;
using dovecote::lines::Names;

namespace {

std::string_view view(PyObject* object) {
  if (!PyBytes_Check(object)) throw nb::type_error("names and values of header lines are bytes");
  return {PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object))};
}

// Pairs are tuples; servers that are not ours may bring lists.
PyObject* part(PyObject* line, Py_ssize_t place) { return PySequence_Fast_GET_ITEM(line, place); }

Line read_line(PyObject* line) {
  if (!(PyTuple_Check(line) || PyList_Check(line)) || PySequence_Fast_GET_SIZE(line) != 2) {
    throw nb::type_error("a header line is a pair");
  }
  return {view(part(line, 0)), view(part(line, 1))};
}

nb::object lower(PyObject* text) {
  const std::string_view before = view(text);
  if (!dovecote::lines::has_capitals(before)) return nb::borrow(text);
  // Made without its bytes: what is made of a single one is shared by the whole interpreter, and not to be written.
  nb::object lowered = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(before.size())));
  if (!lowered.is_valid()) throw nb::python_error();
  dovecote::lines::put_lower(before, PyBytes_AS_STRING(lowered.ptr()));
  return lowered;
}

nb::object make_line(PyObject* name, PyObject* value) {
  PyObject* line = PyTuple_Pack(2, name, value);
  if (line == nullptr) throw nb::python_error();
  return nb::steal(line);
}

void append(const nb::list& lines, PyObject* line) {
  if (PyList_Append(lines.ptr(), line) != 0) throw nb::python_error();
}

nb::object find(nb::list lines, nb::bytes name) {
  const std::string_view wanted = view(name.ptr());
  for (Py_ssize_t place = 0; place < PyList_GET_SIZE(lines.ptr()); ++place) {
    PyObject* line = PyList_GET_ITEM(lines.ptr(), place);
    if (read_line(line).name == wanted) return nb::borrow(part(line, 1));
  }
  return nb::none();
}

nb::tuple read_framing(nb::list lines) {
  Framing framing;
  for (Py_ssize_t place = 0; place < PyList_GET_SIZE(lines.ptr()); ++place) {
    framing.read(read_line(PyList_GET_ITEM(lines.ptr(), place)));
  }
  return nb::make_tuple(framing.lengths, framing.hosts, framing.codings, framing.other_codings,
                        framing.expects_continue, framing.is_torn);
}

char* put(char* place, std::string_view text) {
  std::memcpy(place, text.data(), text.size());
  return place + text.size();
}

nb::bytes join(nb::bytes start, nb::list lines, nb::bytes body) {
  const std::string_view first = view(start.ptr()), rest = view(body.ptr());
  std::vector<Line> parts;
  parts.reserve(static_cast<std::size_t>(PyList_GET_SIZE(lines.ptr())));
  std::size_t size = first.size() + 4 + rest.size();
  for (Py_ssize_t place = 0; place < PyList_GET_SIZE(lines.ptr()); ++place) {
    const Line line = read_line(PyList_GET_ITEM(lines.ptr(), place));
    if (dovecote::lines::has_line_end(line.name) || dovecote::lines::has_line_end(line.value)) {
      throw nb::value_error("a header line has a line end in it");
    }
    size += line.name.size() + line.value.size() + 4;
    parts.push_back(line);
  }
  PyObject* joined = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (joined == nullptr) throw nb::python_error();
  char* place = put(PyBytes_AS_STRING(joined), first);
  for (const Line& line : parts) place = put(put(put(put(place, "\r\n"), line.name), ": "), line.value);
  put(put(place, "\r\n\r\n"), rest);
  return nb::steal<nb::bytes>(joined);
}

// Which lines cross from one hop to the next.
class LineFilter {
 public:
  LineFilter(nb::iterable left_out, nb::bytes prefix, nb::list added) : names_(read(left_out), {prefix.c_str(), prefix.size()}) {
    for (Py_ssize_t place = 0; place < PyList_GET_SIZE(added.ptr()); ++place) read_line(PyList_GET_ITEM(added.ptr(), place));
    added_ = nb::list(added);
  }

  nb::list keep(nb::list lines, nb::dict own) const {
    const Names named = find_named(lines);
    nb::list kept;
    for (Py_ssize_t place = 0; place < PyList_GET_SIZE(lines.ptr()); ++place) {
      PyObject* line = PyList_GET_ITEM(lines.ptr(), place);
      const Line read = read_line(line);
      const nb::object name = lower(part(line, 0));
      const std::string_view lowered = view(name.ptr());
      if (names_.holds(lowered) || (!named.empty() && named.contains(lowered)) || own.contains(name)) continue;
      if (lowered.data() == read.name.data()) append(kept, line);
      else append(kept, make_line(name.ptr(), part(line, 1)).ptr());
    }
    for (const nb::handle line : added_) append(kept, line.ptr());
    for (const auto [name, value] : own) append(kept, make_line(name.ptr(), value.ptr()).ptr());
    return kept;
  }

 private:
  static std::vector<std::string> read(const nb::iterable& names) {
    std::vector<std::string> texts;
    for (const nb::handle name : names) texts.emplace_back(view(name.ptr()));
    return texts;
  }

  static Names find_named(const nb::list& lines) {
    Names named;
    for (Py_ssize_t place = 0; place < PyList_GET_SIZE(lines.ptr()); ++place) {
      const Line line = read_line(PyList_GET_ITEM(lines.ptr(), place));
      if (dovecote::lines::is_same(line.name, "connection")) dovecote::lines::add_named(line.value, named);
    }
    return named;
  }

  LeftOut names_;
  nb::list added_;
};

// Takes the lines of one head after the other from a parser, within limits.
class LineReader {
 public:
  LineReader(std::size_t max_lines, std::size_t max_bytes) : max_lines_(max_lines), max_bytes_(max_bytes) {}

  void begin() {
    lines_ = nb::list();
    size_bytes_ = 0;
    is_open_ = true;
    is_too_large_ = false;
  }

  void count(std::size_t size_bytes) {
    if (size_bytes > max_bytes_ - size_bytes_) is_too_large_ = true;
    else size_bytes_ += size_bytes;
  }

  void add(nb::bytes name, nb::bytes value) {
    if (!is_open_ || is_too_large_) return;
    count(name.size() + value.size());
    is_too_large_ = is_too_large_ || static_cast<std::size_t>(PyList_GET_SIZE(lines_.ptr())) == max_lines_;
    if (!is_too_large_) append(lines_, make_line(lower(name.ptr()).ptr(), value.ptr()).ptr());
  }

  nb::object take() {
    if (is_too_large_) return nb::none();
    is_open_ = false;
    return std::exchange(lines_, nb::list());
  }

 private:
  std::size_t max_lines_;
  std::size_t max_bytes_;
  nb::list lines_;
  std::size_t size_bytes_ = 0;
  bool is_open_ = false;
  bool is_too_large_ = false;
};

}  // namespace

NB_MODULE(_header_lines, module) {
  // What other modules still refer to when the interpreter ends is no leak.
  nb::set_leak_warnings(false);
  module.doc() = "Header lines, compiled.";
  module.def("find", &find, "lines"_a, "name"_a);
  module.def("read_framing", &read_framing, "lines"_a);
  module.def("join", &join, "start"_a, "lines"_a, "body"_a);
  nb::class_<LineFilter>(module, "LineFilter")
      .def(nb::init<nb::iterable, nb::bytes, nb::list>(), "left_out"_a, "prefix"_a, "added"_a)
      .def("keep", &LineFilter::keep, "lines"_a, "own"_a);
  nb::class_<LineReader>(module, "LineReader")
      .def(nb::init<std::size_t, std::size_t>(), "max_lines"_a, "max_bytes"_a)
      .def("begin", &LineReader::begin)
      .def("count", &LineReader::count, "size_bytes"_a)
      .def("add", &LineReader::add, "name"_a, "value"_a)
      .def("take", &LineReader::take);
}
