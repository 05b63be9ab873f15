// Native module of streams: whether an event is more of the same.

#include <nanobind/nanobind.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "alike.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using dovecote::event_text::Alike;

namespace {

std::string_view view(const nb::bytes& data) { return {data.c_str(), data.size()}; }

void make(Alike* place, nb::bytes before, nb::bytes behind) {
  new (place) Alike(std::string(view(before)), std::string(view(behind)));
}

bool fits(const Alike& alike, nb::bytes data, std::size_t start, std::size_t end) {
  if (start > end || end > data.size()) return false;
  return alike.fits(view(data).substr(start, end - start));
}

std::size_t count_chunks(const Alike& alike, nb::bytes data) { return alike.count_chunks(view(data)); }

}  // namespace

NB_MODULE(_event_text, module) {
  // What other modules still refer to when the interpreter ends is no leak.
  nb::set_leak_warnings(false);
  module.doc() = "Events of streams that are more of the same, compiled.";
  nb::class_<Alike>(module, "Alike")
      .def("__init__", &make, "before"_a, "behind"_a)
      .def("fits", &fits, "data"_a, "start"_a, "end"_a)
      .def("count_chunks", &count_chunks, "data"_a);
}
