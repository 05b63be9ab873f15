#include "table.hpp"

#include <stdexcept>

namespace dovecote::pricing {

Table::Table(const nb::list& targets, const nb::list& hashes, nb::handle coefficients)
    : targets_(targets), givens_(coefficients), ranks_(targets.size()) {
  for (std::size_t row = 0; row < ranks_.size(); ++row) {
    ranks_[row].hash = nb::cast<std::uint64_t>(hashes[row]);
    rows_[targets[row]] = row;
  }
}

nb::list Table::write(nb::handle standings, nb::handle ledger, nb::handle live, nb::handle paces, double now_s) {
  static const Name target("target");
  const Sources sources(ledger, live, paces, now_s);
  nb::list odd;
  for (const nb::handle standing : standings) {
    const nb::object name = target.of(standing);
    Rank* row = find(name);
    if (!row) throw nb::key_error("no rank of this table");
    try {
      row->is_known = read_standing(sources, givens_, standing, *row);
    } catch (nb::python_error&) {
      // The terms in Python stumble over the same figure, and say over which.
      row->is_known = false;
    }
    if (!row->is_known) odd.append(name);
  }
  return odd;
}

Rank* Table::find(nb::handle target) {
  const nb::handle row = pricing::find(rows_, target);
  return row ? &ranks_[PyLong_AsSize_t(row.ptr())] : nullptr;
}

}  // namespace dovecote::pricing
