#include "lines.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dovecote::lines {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\v\f";
constexpr std::size_t kLongest = 63;

bool is_capital(char byte) { return byte >= 'A' && byte <= 'Z'; }

char lower(char byte) { return is_capital(byte) ? static_cast<char>(byte + ('a' - 'A')) : byte; }

bool holds(std::string_view text, char byte) {
  return !text.empty() && std::memchr(text.data(), byte, text.size()) != nullptr;
}

}  // namespace

std::string_view strip(std::string_view text) {
  const std::size_t start = text.find_first_not_of(kBlanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(kBlanks) + 1 - start);
}

bool is_same(std::string_view text, std::string_view lowered) {
  return text.size() == lowered.size() &&
         std::equal(text.begin(), text.end(), lowered.begin(), [](char a, char b) { return lower(a) == b; });
}

bool has_capitals(std::string_view text) { return std::any_of(text.begin(), text.end(), is_capital); }

void put_lower(std::string_view text, char* to) {
  std::transform(text.begin(), text.end(), to, [](char byte) { return lower(byte); });
}

bool has_line_end(std::string_view text) { return holds(text, '\n') || holds(text, '\r'); }

void add_named(std::string_view value, Names& names) {
  while (true) {
    const std::size_t comma = value.find(',');
    std::string name(strip(value.substr(0, comma)));
    std::transform(name.begin(), name.end(), name.begin(), lower);
    names.insert(std::move(name));
    if (comma == std::string_view::npos) return;
    value.remove_prefix(comma + 1);
  }
}

LeftOut::LeftOut(std::vector<std::string> names, std::string prefix) : prefix_(std::move(prefix)) {
  for (std::string& name : names) {
    lengths_ |= std::size_t{1} << std::min(name.size(), kLongest);
    names_.insert(std::move(name));
  }
}

bool LeftOut::holds(std::string_view name) const {
  if ((lengths_ >> std::min(name.size(), kLongest) & 1) != 0 && names_.contains(name)) return true;
  return !prefix_.empty() && name.starts_with(prefix_);
}

void Framing::read(const Line& line) {
  is_torn = is_torn || has_line_end(line.value) || lines::holds(line.value, '\0');
  if (line.name == "content-length") {
    ++lengths;
  } else if (line.name == "host") {
    ++hosts;
  } else if (line.name == "transfer-encoding") {
    ++codings;
    if (!is_same(strip(line.value), "chunked")) ++other_codings;
  } else if (line.name == "expect") {
    expects_continue = is_same(line.value, "100-continue");
  }
}

}  // namespace dovecote::lines
