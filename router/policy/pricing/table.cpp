#include "table.hpp"

#include <stdexcept>

namespace dovecote::pricing {

Table::Table(const nb::list& targets, const nb::list& hashes) : targets_(targets), ranks_(targets.size()) {
  for (std::size_t row = 0; row < ranks_.size(); ++row) {
    ranks_[row].hash = nb::cast<std::uint64_t>(hashes[row]);
    rows_[targets[row]] = row;
  }
}

bool Table::put(nb::handle target, nb::handle view, const nb::tuple& own, const nb::tuple& told,
                const nb::tuple& foreign) {
  Rank* rank = find(target);
  if (!rank) throw nb::key_error("no rank of this table");
  rank->is_known = read_view(view, *rank);
  rank->wait = read_wait(own, told, foreign);
  return rank->is_known;
}

Rank* Table::find(nb::handle target) {
  PyObject* row = PyDict_GetItemWithError(rows_.ptr(), target.ptr());
  if (!row && PyErr_Occurred()) throw nb::python_error();
  return row ? &ranks_[PyLong_AsSize_t(row)] : nullptr;
}

}  // namespace dovecote::pricing
