// Looks a JSON object over in one pass: its syntax, its text, where its members lie.
//
// An acceptor, not a judge: what it accepts is JSON of which every part can be decoded, with no name
// twice at the top; whatever it is not sure of, broken or merely rare, is left to the decoder, whose
// words are for people.
// Source: RFC 8259; RFC 3629 for UTF-8.
#pragma once

#include <cstddef>
#include <vector>

namespace dovecote::text {

// Where a member of the object lies; its name without quotes.
struct Member {
  std::size_t name, name_end, value, value_end;
};

// Levels of arrays and objects, the object itself included.
inline constexpr int kMaxDepth = 64;
// Characters of a number: no longer one is out of anybody's range.
inline constexpr std::size_t kMaxNumber = 200;
// Members; every name is compared with every other.
inline constexpr std::size_t kMaxMembers = 64;

// Where `"role"` begins in a text, at most `most` places, from the first on; also where it is no name of a member.
std::vector<std::size_t> find_roles(const unsigned char* text, std::size_t bytes, std::size_t most);

// Members in their order; false where it is not sure.
bool scan(const unsigned char* text, std::size_t bytes, std::vector<Member>& members);

}  // namespace dovecote::text
