#include "scan.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dovecote::text {

namespace {

using Byte = unsigned char;

bool is_blank(Byte c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(Byte c) { return c >= '0' && c <= '9'; }
// Not a plain character of a string: its end, an escape, a control character, more than one byte.
bool is_special(Byte c) { return c < 0x20 || c == '"' || c == '\\' || c >= 0x80; }
// What a backslash and this one character stand for; `u` takes more of them.
bool is_escape(Byte c) {
  return c == 'n' || c == '"' || c == '\\' || c == 't' || c == 'r' || c == '/' || c == 'b' || c == 'f';
}
bool goes_on(Byte c) { return (c & 0xC0) == 0x80; }

class Scanner {
 public:
  Scanner(const Byte* text, std::size_t bytes) : begin_(text), at_(text), end_(text + bytes) {}

  bool scan(std::vector<Member>& members) {
    skip_blanks();
    if (!take('{')) return false;
    skip_blanks();
    if (take('}')) return ends();
    do {
      Member member;
      skip_blanks();
      member.name = place() + 1;
      if (!skip_name()) return false;
      member.name_end = name_end_;
      member.value = place();
      if (!skip_value(1)) return false;
      member.value_end = place();
      if (members.size() == kMaxMembers || is_known(members, member)) return false;
      members.push_back(member);
      skip_blanks();
    } while (take(','));
    return take('}') && ends();
  }

 private:
  std::size_t place() const { return static_cast<std::size_t>(at_ - begin_); }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  bool take(Byte c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  void skip_blanks() {
    while (at_ < end_ && is_blank(*at_)) ++at_;
  }

  bool ends() {
    skip_blanks();
    return at_ == end_;
  }

  // A name with its colon and the blanks behind it. One with an escape might be another's twin.
  bool skip_name() {
    const Byte* const name = at_;
    if (!skip_string()) return false;
    name_end_ = place() - 1;
    is_escaped_ = std::memchr(name, '\\', static_cast<std::size_t>(at_ - name)) != nullptr;
    skip_blanks();
    if (!take(':')) return false;
    skip_blanks();
    return true;
  }

  bool is_known(const std::vector<Member>& members, const Member& member) const {
    if (is_escaped_) return true;
    const std::size_t length = member.name_end - member.name;
    for (const Member& other : members)
      if (other.name_end - other.name == length &&
          std::memcmp(begin_ + other.name, begin_ + member.name, length) == 0)
        return true;
    return false;
  }

  bool skip_value(int depth) {
    if (at_ == end_) return false;
    switch (*at_) {
      case '"':
        return skip_string();
      case '{':
        return depth < kMaxDepth && skip_object(depth + 1);
      case '[':
        return depth < kMaxDepth && skip_array(depth + 1);
      case 't':
        return skip_word("true", 4);
      case 'f':
        return skip_word("false", 5);
      case 'n':
        return skip_word("null", 4);
      default:
        return skip_number();
    }
  }

  bool skip_object(int depth) {
    ++at_;
    skip_blanks();
    if (take('}')) return true;
    do {
      skip_blanks();
      if (!skip_string()) return false;
      skip_blanks();
      if (!take(':')) return false;
      skip_blanks();
      if (!skip_value(depth)) return false;
      skip_blanks();
    } while (take(','));
    return take('}');
  }

  bool skip_array(int depth) {
    ++at_;
    skip_blanks();
    if (take(']')) return true;
    do {
      skip_blanks();
      if (!skip_value(depth)) return false;
      skip_blanks();
    } while (take(','));
    return take(']');
  }

  bool skip_word(const char* word, std::size_t length) {
    if (left() < length || std::memcmp(at_, word, length) != 0) return false;
    at_ += length;
    return true;
  }

  bool skip_digits() {
    const Byte* const first = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    return at_ > first;
  }

  // With at most two digits of exponent, so that no decoder finds it out of range.
  bool skip_number() {
    const Byte* const first = at_;
    take('-');
    if (!take('0') && !skip_digits()) return false;
    if (take('.') && !skip_digits()) return false;
    if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      const Byte* const exponent = at_;
      if (!skip_digits() || at_ - exponent > 2) return false;
    }
    return static_cast<std::size_t>(at_ - first) <= kMaxNumber;
  }

  bool skip_string() {
    if (!take('"')) return false;
    for (;;) {
      skip_plain();
      if (at_ == end_ || *at_ < 0x20) return false;
      if (*at_ == '"') {
        ++at_;
        return true;
      }
      if (!(*at_ == '\\' ? skip_escape() : skip_wide())) return false;
    }
  }

#if defined(__SSE2__)
  static unsigned mask_of(__m128i bytes) { return static_cast<unsigned>(_mm_movemask_epi8(bytes)); }

  // Places behind a backslash that is not escaped itself; the one behind a block of 16 is among them.
  // In a row of backslashes every second one escapes: a row that begins at an odd place is added to itself,
  // so that its carry ends it, and what follows it is told by where that falls.
  // Source: Langdale and Lemire, Parsing Gigabytes of JSON per Second, section 3.1.1.
  static unsigned find_escaped(unsigned escaping) {
    constexpr unsigned kEven = 0x55555555u;
    const unsigned behind = escaping << 1;
    const unsigned odd_begins = escaping & ~kEven & ~behind;
    return (kEven ^ ((odd_begins + escaping) << 1)) & behind;
  }

  // Where a letter or slash stands that a backslash may stand before.
  static unsigned find_escapes(__m128i block) {
    const auto is = [&](char c) { return _mm_cmpeq_epi8(block, _mm_set1_epi8(c)); };
    const __m128i most = _mm_or_si128(_mm_or_si128(is('n'), is('t')), is('r'));
    return mask_of(_mm_or_si128(most, _mm_or_si128(is('/'), _mm_or_si128(is('b'), is('f')))));
  }
#endif

  // Up to the next special character; on the way over escapes of one character, which code is full of.
  void skip_plain() {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), least = _mm_set1_epi8(0x20);
    while (left() >= 16) {
      const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at_));
      const __m128i quotes = _mm_cmpeq_epi8(block, quote), slashes = _mm_cmpeq_epi8(block, slash);
      // Signed: below 0x20 are control characters and all bytes from 0x80 on.
      const __m128i others = _mm_cmplt_epi8(block, least);
      auto stops = mask_of(_mm_or_si128(_mm_or_si128(quotes, slashes), others));
      if (stops != 0) {
        const int place = std::countr_zero(stops);
        if (at_[place] != '\\' || place == 15 || at_[place + 1] == 'u') {
          at_ += place;
          return;
        }
        const unsigned escaped = find_escaped(mask_of(slashes));
        const unsigned wrong = escaped & ~(mask_of(_mm_or_si128(quotes, slashes)) | find_escapes(block));
        stops = (mask_of(quotes) & ~escaped) | mask_of(others) | (wrong >> 1);
        if (stops != 0) {
          at_ += std::countr_zero(stops);
          return;
        }
      }
      at_ += 16;
    }
#else
    // Eight at a time; a borrow may call a plain character special, never the other way round.
    constexpr std::uint64_t kOnes = 0x0101010101010101u, kHigh = 0x8080808080808080u;
    const auto has_zero = [](std::uint64_t word) { return (word - kOnes) & ~word & kHigh; };
    while (left() >= 8) {
      std::uint64_t word;
      std::memcpy(&word, at_, sizeof word);
      if ((((word - 0x20 * kOnes) | word) & kHigh) | has_zero(word ^ ('"' * kOnes)) | has_zero(word ^ ('\\' * kOnes)))
        break;
      at_ += 8;
    }
#endif
    while (at_ < end_ && !is_special(*at_)) ++at_;
  }

  bool read_hex(unsigned& value) {
    if (left() < 4) return false;
    value = 0;
    for (int digit = 0; digit < 4; ++digit) {
      const Byte c = *at_++;
      const Byte lower = c | 0x20;
      if (is_digit(c))
        value = 16 * value + (c - '0');
      else if (lower >= 'a' && lower <= 'f')
        value = 16 * value + (lower - 'a' + 10);
      else
        return false;
    }
    return true;
  }

  bool skip_escape() {
    ++at_;
    if (at_ == end_) return false;
    const Byte c = *at_++;
    if (c != 'u') return is_escape(c);
    unsigned first = 0, second = 0;
    if (!read_hex(first)) return false;
    if (first < 0xD800 || first > 0xDFFF) return true;
    // Half of a pair is no character.
    return first < 0xDC00 && take('\\') && take('u') && read_hex(second) && second >= 0xDC00 && second <= 0xDFFF;
  }

  // Characters of several bytes, up to the next of one.
  bool skip_wide() {
    do {
      if (!skip_same() && !skip_character()) return false;
    } while (at_ < end_ && *at_ >= 0x80);
    return true;
  }

  // Two characters of three bytes or four of two, as most text that is not Latin has them in a row.
  bool skip_same() {
    if constexpr (std::endian::native != std::endian::little) return false;
    if (left() < 8) return false;
    std::uint64_t word;
    std::memcpy(&word, at_, sizeof word);
    if ((word & 0x0000C0C0F0C0C0F0u) == 0x00008080E08080E0u) {
      const Byte first = at_[0], second = at_[3];
      // What may follow these is told more closely.
      if (first == 0xE0 || first == 0xED || second == 0xE0 || second == 0xED) return false;
      at_ += 6;
      return true;
    }
    if ((word & 0xC0E0C0E0C0E0C0E0u) != 0x80C080C080C080C0u) return false;
    // Each begins with 0xC2 or more: below it would be a longer form of one byte.
    const std::uint64_t begins = (word & 0x001E001E001E001Eu) + 0x007E007E007E007Eu;
    if ((begins & 0x0080008000800080u) != 0x0080008000800080u) return false;
    at_ += 8;
    return true;
  }

  // No overlong form, no surrogate, nothing above U+10FFFF.
  bool skip_character() {
    const Byte c = *at_;
    const std::size_t length = c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (length == 0 || left() < length) return false;
    for (std::size_t byte = 1; byte < length; ++byte)
      if (!goes_on(at_[byte])) return false;
    const Byte next = at_[1];
    if ((c == 0xE0 && next < 0xA0) || (c == 0xED && next > 0x9F) || (c == 0xF0 && next < 0x90) ||
        (c == 0xF4 && next > 0x8F))
      return false;
    at_ += length;
    return true;
  }

  const Byte* const begin_;
  const Byte* at_;
  const Byte* const end_;
  std::size_t name_end_ = 0;
  bool is_escaped_ = false;
};

}  // namespace

std::vector<std::size_t> find_roles(const unsigned char* text, std::size_t bytes, std::size_t most) {
  constexpr std::string_view kRole = "\"role\"";
  std::vector<std::size_t> places;
  const auto look_at = [&](std::size_t at) {
    if (at + kRole.size() > bytes || places.size() == most) return;
    if (!places.empty() && at < places.back() + kRole.size()) return;
    if (std::memcmp(text + at, kRole.data(), kRole.size()) == 0) places.push_back(at);
  };
  std::size_t at = 0;
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"'), first = _mm_set1_epi8('r');
  const auto load = [&](std::size_t from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + from)); };
  for (; at + 17 <= bytes && places.size() < most; at += 16) {
    const __m128i found = _mm_and_si128(_mm_cmpeq_epi8(load(at), quote), _mm_cmpeq_epi8(load(at + 1), first));
    for (auto mask = static_cast<unsigned>(_mm_movemask_epi8(found)); mask != 0; mask &= mask - 1)
      look_at(at + std::countr_zero(mask));
  }
#endif
  for (; at < bytes && places.size() < most; ++at) look_at(at);
  return places;
}

bool scan(const unsigned char* text, std::size_t bytes, std::vector<Member>& members) {
  return Scanner(text, bytes).scan(members);
}

}  // namespace dovecote::text
