// Canonical hashes of consecutive blocks: XXH3-64 of (hash before, 8 bytes; tokens, 4 bytes each).
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "types.hpp"
#include "xxh3.hpp"

namespace dovecote {

inline void write_little(unsigned char* to, std::uint64_t value) {
  if constexpr (std::endian::native != std::endian::little) value = xxh3::swap64(value);
  std::memcpy(to, &value, sizeof value);
}

inline void swap_tokens(unsigned char* block, std::size_t bytes) {
  for (std::size_t at = 8; at < bytes; at += 4) {
    std::swap(block[at], block[at + 3]);
    std::swap(block[at + 1], block[at + 2]);
  }
}

// Hashes of `blocks` blocks; a `Size` that is a constant of the type lets the compiler unroll the hash.
template <typename Size>
void chain_sized(const std::uint32_t* tokens, std::size_t blocks, Size block_tokens, Place parent, Place* out,
                 unsigned char* scratch) {
  const std::size_t bytes = 8 + 4 * block_tokens;
  for (std::size_t at = 0; at < blocks; ++at) {
    write_little(scratch, parent);
    std::memcpy(scratch + 8, tokens + at * block_tokens, 4 * block_tokens);
    if constexpr (std::endian::native != std::endian::little) swap_tokens(scratch, bytes);
    parent = xxh3::hash(scratch, 8 + 4 * block_tokens, 0);
    out[at] = parent;
  }
}

// The hash of one block of 16 tokens, read where they lie: XXH3-64 of 72 bytes, of which only the first 8 wait for
// the block before.
inline Place hash_16_tokens(Place parent, const unsigned char* tokens) {
  using xxh3::kSecret;
  const auto mix = [&](std::size_t at, std::size_t secret) { return xxh3::mix16(tokens + at, kSecret + secret, 0); };
  const std::uint64_t rest =
      72 * xxh3::kPrime64[0] + mix(48, 16) + mix(8, 32) + mix(32, 48) + mix(24, 64) + mix(16, 80);
  return xxh3::avalanche(rest + xxh3::fold_product(parent ^ xxh3::read64(kSecret),
                                                   xxh3::read64(tokens) ^ xxh3::read64(kSecret + 8)));
}

inline void chain_16_tokens(const std::uint32_t* tokens, std::size_t blocks, Place parent, Place* out) {
  for (std::size_t at = 0; at < blocks; ++at)
    out[at] = parent = hash_16_tokens(parent, reinterpret_cast<const unsigned char*>(tokens + 16 * at));
}

template <std::size_t kTokens>
void chain_constant(const std::uint32_t* tokens, std::size_t blocks, Place parent, Place* out) {
  unsigned char scratch[8 + 4 * kTokens];
  chain_sized(tokens, blocks, std::integral_constant<std::size_t, kTokens>{}, parent, out, scratch);
}

inline void chain_blocks(const std::uint32_t* tokens, std::size_t blocks, std::size_t block_tokens, Place parent,
                         Place* out) {
  if constexpr (std::endian::native == std::endian::little)
    if (block_tokens == 16) return chain_16_tokens(tokens, blocks, parent, out);
  if (block_tokens == 32) return chain_constant<32>(tokens, blocks, parent, out);
  if (block_tokens == 64) return chain_constant<64>(tokens, blocks, parent, out);
  std::vector<unsigned char> scratch(8 + 4 * block_tokens);
  chain_sized(tokens, blocks, block_tokens, parent, out, scratch.data());
}

}  // namespace dovecote
