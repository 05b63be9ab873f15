// Numbers out of Python's objects, by the names of their fields.
#pragma once

#include <nanobind/nanobind.h>

#include "terms.hpp"

namespace dovecote::pricing {

namespace nb = nanobind;

// A count from outside, cut to what can be reckoned with.
Count read_count(nb::handle count);
double read_real(nb::handle number);

//: A field's name, made once.
class Name {
 public:
  explicit Name(const char* word) : word_(PyUnicode_InternFromString(word)) {}
  nb::object of(nb::handle object) const;
  Count count(nb::handle object) const { return read_count(of(object)); }
  nb::dict dict(nb::handle object) const { return nb::cast<nb::dict>(of(object)); }
  double real(nb::handle object) const { return read_real(of(object)); }

 private:
  PyObject* word_;
};

//: A question as it is asked, with what is compared by identity.
struct Asked {
  Query query;
  nb::object home, request_id;
};

// `PlacementQuery`; false where a count is beyond the bounds.
bool read_query(nb::handle query, double now_s, Asked& asked);
Coefficients read_coefficients(nb::handle coefficients);
// An entry; null where there is none.
nb::handle find(const nb::dict& from, nb::handle key);
// A count of one; 0 where there is none.
Count find_count(const nb::dict& counts, nb::handle key);

}  // namespace dovecote::pricing
