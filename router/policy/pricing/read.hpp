// Numbers out of Python's objects, by the names of their fields.
#pragma once

#include <nanobind/nanobind.h>

#include "terms.hpp"

namespace dovecote::pricing {

namespace nb = nanobind;

//: A question as it is asked, with what is compared by identity.
struct Asked {
  Query query;
  nb::object home, request_id;
};

// `RankView` without its wait; false where a count is beyond the bounds.
bool read_view(nb::handle view, Rank& rank);
// The ledger's part as (settled_at_s, remaining_s, floor_s), those of others as ((waiting_s, told_at_s), ...), and of a
// report as (foreign_s, reported_at_s, counts_for_s).
Wait read_wait(const nb::tuple& own, const nb::tuple& told, const nb::tuple& foreign);
// `PlacementQuery`; false where a count is beyond the bounds.
bool read_query(nb::handle query, double now_s, Asked& asked);
Coefficients read_coefficients(nb::handle coefficients);
// A count from outside, cut to what can be reckoned with.
Count read_count(nb::handle count);
// The same of one entry; 0 where there is none.
Count find_count(const nb::dict& counts, nb::handle key);

}  // namespace dovecote::pricing
