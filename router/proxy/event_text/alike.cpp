#include "alike.hpp"

#include <cstring>
#include <utility>

namespace dovecote::event_text {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::size_t kMaxDigits = 4;

// Takes the first line of a plain chunk off; its length, 0 where there is none such.
std::size_t take_size(std::string_view& data) {
  std::size_t size = 0, digits = 0;
  for (; digits < data.size() && digits < kMaxDigits; ++digits) {
    const char byte = data[digits];
    if (byte >= '0' && byte <= '9') size = 16 * size + static_cast<std::size_t>(byte - '0');
    else if (byte >= 'a' && byte <= 'f') size = 16 * size + static_cast<std::size_t>(byte - 'a' + 10);
    else break;
  }
  if (digits == 0 || data.front() == '0' || size > kMaxChunkBytes) return 0;
  data.remove_prefix(digits);
  if (!data.starts_with(kLineEnd)) return 0;
  data.remove_prefix(kLineEnd.size());
  return size;
}

}  // namespace

Alike::Alike(std::string before, std::string behind) : before_(std::move(before)), behind_(std::move(behind)) {}

bool Alike::fits(std::string_view event) const {
  if (event.size() < before_.size() + behind_.size()) return false;
  if (!event.starts_with(before_) || !event.ends_with(behind_)) return false;
  const std::size_t end = event.size() - behind_.size();
  const std::string_view text = event.substr(before_.size(), end - before_.size());
  if (!text.empty() && std::memchr(text.data(), '"', text.size()) != nullptr) return false;
  return end == 0 || event[end - 1] != '\\';
}

std::size_t Alike::count_chunks(std::string_view data) const {
  std::size_t count = 0;
  while (!data.empty()) {
    const std::size_t size = take_size(data);
    if (size == 0 || data.size() < size + kLineEnd.size()) return 0;
    if (!fits(data.substr(0, size)) || !data.substr(size).starts_with(kLineEnd)) return 0;
    data.remove_prefix(size + kLineEnd.size());
    ++count;
  }
  return count;
}

}  // namespace dovecote::event_text
