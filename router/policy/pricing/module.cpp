// Native module of the cost policy: every rank that may be chosen, priced in one call.

#include <nanobind/nanobind.h>

#include "pricer.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using dovecote::pricing::Pricer;
using dovecote::pricing::Table;

NB_MODULE(_pricing, module) {
  // What other modules still refer to when the interpreter ends is no leak.
  nb::set_leak_warnings(false);
  module.doc() = "The cost policy's terms over all ranks of a pool, compiled.";
  nb::class_<Table>(module, "Table")
      .def(nb::init<const nb::list&, const nb::list&, nb::handle>(), "targets"_a, "hashes"_a, "coefficients"_a)
      .def("write", &Table::write, "standings"_a, "ledger"_a, "live"_a, "paces"_a, "now_s"_a)
      .def("targets", &Table::targets);
  nb::class_<Pricer>(module, "Pricer")
      .def(nb::init<nb::handle, nb::handle, const nb::tuple&, nb::object>(), "weights"_a, "coefficients"_a, "window"_a,
           "draw"_a)
      .def("choose", &Pricer::choose, "tables"_a, "query"_a, "confirmed"_a, "expected"_a, "credit_ratio"_a, "now_s"_a,
           "excluded"_a, "given"_a, "seed"_a, "few"_a)
      .def("choose_home", &Pricer::choose_home, "tables"_a, "query"_a, "confirmed"_a, "expected"_a, "credit_ratio"_a,
           "now_s"_a, "least_prefill_ratio"_a);
}
