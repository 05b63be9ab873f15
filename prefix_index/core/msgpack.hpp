// Reader of MessagePack: values of the types asked for, in order, and nothing past the end.
//
// Whatever is not of the type asked for makes the reader fail for good; its answers are void then.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "types.hpp"
#include "xxh3.hpp"

namespace dovecote {

// How a token's first byte tells its length (bits 0-7) and where its bits lie in the 8 bytes from it on: how far
// to shift them left (bits 8-15) and then right (bits 16-23). 0 for what is no usual token.
constexpr std::array<std::uint32_t, 256> make_token_shapes() {
  std::array<std::uint32_t, 256> shapes{};
  const auto shape = [](std::uint32_t length, std::uint32_t left, std::uint32_t right) {
    return length | left << 8 | right << 16;
  };
  for (int tag = 0; tag < 0x80; ++tag) shapes[tag] = shape(1, 0, 56);
  shapes[0xCC] = shape(2, 8, 56);
  shapes[0xCD] = shape(3, 8, 48);
  shapes[0xCE] = shape(5, 8, 32);
  return shapes;
}
inline constexpr std::array<std::uint32_t, 256> kTokenShapes = make_token_shapes();

class Reader {
 public:
  explicit Reader(std::string_view data)
      : at_(reinterpret_cast<const unsigned char*>(data.data())), end_(at_ + data.size()) {}

  bool has_failed() const { return has_failed_; }
  bool is_at_end() const { return at_ == end_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  void fail() { has_failed_ = true; }

  bool is_map() const { return left() > 0 && ((*at_ & 0xF0) == 0x80 || *at_ == 0xDE || *at_ == 0xDF); }
  bool is_array() const { return left() > 0 && ((*at_ & 0xF0) == 0x90 || *at_ == 0xDC || *at_ == 0xDD); }
  bool is_text() const { return left() > 0 && ((*at_ & 0xE0) == 0xA0 || (*at_ >= 0xD9 && *at_ <= 0xDB)); }
  bool is_bytes() const { return left() > 0 && *at_ >= 0xC4 && *at_ <= 0xC6; }
  bool is_integer() const {
    return left() > 0 && (*at_ < 0x80 || *at_ >= 0xE0 || (*at_ >= 0xCC && *at_ <= 0xD3));
  }

  bool take_nil() {
    if (left() == 0 || *at_ != 0xC0) return false;
    ++at_;
    return true;
  }
  std::size_t array() { return is_array() ? sized(0xF0, 0x90, 0xDC, 2) : none(); }
  std::size_t map() { return is_map() ? sized(0xF0, 0x80, 0xDE, 2) : none(); }
  std::string_view text() { return is_text() ? take(sized(0xE0, 0xA0, 0xD9, 1)) : take(none()); }
  std::string_view bytes() { return is_bytes() ? take(sized(0xFF, 0x00, 0xC4, 1)) : take(none()); }

  // A text that is ASCII: others would have to be checked, and are rare.
  std::string_view ascii() {
    const std::string_view word = text();
    unsigned char seen = 0;
    for (const char letter : word) seen |= static_cast<unsigned char>(letter);
    if (seen >= 0x80) fail();
    return word;
  }

  struct Integer {
    std::uint64_t bits;
    bool is_negative;
  };
  Integer integer() {
    if (!is_integer()) return none(), Integer{0, false};
    const unsigned char tag = *at_++;
    if (tag < 0x80) return {tag, false};
    if (tag >= 0xE0) return {static_cast<std::uint64_t>(static_cast<signed char>(tag)), true};
    const int width = 1 << (tag & 3);
    const std::uint64_t raw = big_endian(width);
    if (tag < 0xD0) return {raw, false};
    const int shift = 64 - 8 * width;
    const auto value = static_cast<std::int64_t>(raw << shift) >> shift;
    return {static_cast<std::uint64_t>(value), value < 0};
  }
  // A number from 0 to `limit`, exclusive.
  std::uint64_t natural(std::uint64_t limit) {
    const Integer value = integer();
    if (value.is_negative || value.bits >= limit) fail();
    return value.bits;
  }
  void number() {
    if (is_integer()) return static_cast<void>(integer());
    if (left() == 0 || (*at_ != 0xCA && *at_ != 0xCB)) return fail();
    take(*at_ == 0xCA ? 5 : 9);
  }

  // So many numbers below 2^32.
  void tokens(std::size_t count, std::uint32_t* out) {
    std::size_t done = 0;
    while (done < count && !has_failed_) {
      done += quick_tokens(count - done, out + done);
      if (done < count) out[done++] = static_cast<std::uint32_t>(natural(std::uint64_t{1} << 32));
    }
  }

  // Pass over one value of any type.
  void skip(int depth = 32) {
    if (left() == 0 || depth == 0) return fail();
    const unsigned char tag = *at_;
    if (is_text()) return static_cast<void>(text());
    if (is_bytes()) return static_cast<void>(bytes());
    if (is_integer() || tag == 0xCA || tag == 0xCB) return number();
    if (tag == 0xC0 || tag == 0xC2 || tag == 0xC3) return static_cast<void>(++at_);
    if (is_array() || is_map()) {
      std::size_t count = is_map() ? 2 * map() : array();
      while (count-- > 0 && !has_failed_) skip(depth - 1);
      return;
    }
    fail();
  }

 private:
  // Tokens in the usual shapes, without a branch on their length; stops at another, or near the end. How far the
  // next one is, is worked out for many bytes at once, so that each token waits for one look-up and no more.
  std::size_t quick_tokens(std::size_t count, std::uint32_t* out) {
    constexpr std::size_t kSpan = 64;
    std::size_t done = 0;
    unsigned char steps[kSpan];
    bool is_usual = true;
    while (is_usual && done < count && left() >= kSpan + 8) {
      for (std::size_t byte = 0; byte < kSpan; ++byte) {
        const unsigned char tag = at_[byte];
        steps[byte] = static_cast<unsigned char>(1 + (tag == 0xCC) + 2 * (tag == 0xCD) + 4 * (tag == 0xCE));
      }
      std::size_t at = 0;
      while (at < kSpan && done < count) {
        const std::uint32_t shape = kTokenShapes[at_[at]];
        if (shape == 0) [[unlikely]] {
          is_usual = false;
          break;
        }
        std::uint64_t word;
        std::memcpy(&word, at_ + at, sizeof word);
        if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
        out[done++] = static_cast<std::uint32_t>((word << (shape >> 8 & 63)) >> (shape >> 16 & 63));
        at += steps[at];
      }
      at_ += at;
    }
    return done;
  }

  // A count: within the first byte where `(byte & mask) == fixed`, else after a tag from `wide` on.
  std::size_t sized(unsigned char mask, unsigned char fixed, unsigned char wide, int narrowest) {
    const unsigned char tag = *at_++;
    if ((tag & mask) == fixed) return tag & static_cast<unsigned char>(~mask);
    return big_endian(narrowest << (tag - wide));
  }
  std::uint64_t big_endian(int width) {
    if (left() < static_cast<std::size_t>(width)) return none();
    std::uint64_t value = 0;
    for (int byte = 0; byte < width; ++byte) value = value << 8 | at_[byte];
    at_ += width;
    return value;
  }
  std::string_view take(std::size_t size) {
    if (left() < size) return fail(), std::string_view();
    const std::string_view taken(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return taken;
  }
  std::size_t none() {
    has_failed_ = true;
    return 0;
  }

  const unsigned char* at_;
  const unsigned char* end_;
  bool has_failed_ = false;
};

}  // namespace dovecote
