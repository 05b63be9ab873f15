// Header lines of HTTP/1.1 as bytes: names compared in lower case, values taken as they are. Knows nothing of Python.
//
// Source: RFC 9110 sections 5.1 and 7.6.1; RFC 9112 section 6.3.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace dovecote::lines {

struct Line {
  std::string_view name;
  std::string_view value;
};

// Without blanks, tabs and line ends at both ends.
std::string_view strip(std::string_view text);

// Whether two texts are the same but for capitals of ASCII; the second has none.
bool is_same(std::string_view text, std::string_view lowered);

bool has_capitals(std::string_view text);

// Writes a text in lower case, as many bytes as it has.
void put_lower(std::string_view text, char* to);

// Whether a part of a line would end it.
bool has_line_end(std::string_view text);

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

using Names = std::unordered_set<std::string, Hash, std::equal_to<>>;

// Names in the lists that lines of `connection` are, in lower case.
void add_named(std::string_view value, Names& names);

// Names that are left out, and a beginning of names that are.
class LeftOut {
 public:
  LeftOut(std::vector<std::string> names, std::string prefix);

  bool holds(std::string_view name) const;

 private:
  Names names_;
  std::string prefix_;
  // Bit n: some name has n bytes; names of 64 and more share the last one.
  std::size_t lengths_ = 0;
};

// What a head says of where its body ends.
struct Framing {
  std::size_t lengths = 0;
  std::size_t hosts = 0;
  std::size_t codings = 0;
  // Codings but for chunks.
  std::size_t other_codings = 0;
  bool expects_continue = false;
  // Whether a value goes on over the end of its line, or has a zero in it.
  bool is_torn = false;

  void read(const Line& line);
};

}  // namespace dovecote::lines
