// Events of a stream that differ in one text alone, told at a glance; `router/proxy/alike.py` says why that is enough.
//
// Source: RFC 8259 section 7; RFC 9112 section 7.1.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dovecote::event_text {

// Chunks longer than this are left to the parser, as is framing that is not plain: capitals, zeros, extensions.
inline constexpr std::size_t kMaxChunkBytes = 4096;

class Alike {
 public:
  // `before` ends where the text begins, with the quote that opens it; `behind` begins with the one that closes it.
  Alike(std::string before, std::string behind);

  // Whether one such event is all that stands in `event`.
  bool fits(std::string_view event) const;

  // Chunks of HTTP/1.1 there are, of one such event each; 0 where something else is among them.
  std::size_t count_chunks(std::string_view data) const;

 private:
  std::string before_;
  std::string behind_;
};

}  // namespace dovecote::event_text
