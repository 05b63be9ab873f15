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

template <std::size_t kTokens>
void chain_constant(const std::uint32_t* tokens, std::size_t blocks, Place parent, Place* out) {
  unsigned char scratch[8 + 4 * kTokens];
  chain_sized(tokens, blocks, std::integral_constant<std::size_t, kTokens>{}, parent, out, scratch);
}

inline void chain_blocks(const std::uint32_t* tokens, std::size_t blocks, std::size_t block_tokens, Place parent,
                         Place* out) {
  if (block_tokens == 16) return chain_constant<16>(tokens, blocks, parent, out);
  if (block_tokens == 32) return chain_constant<32>(tokens, blocks, parent, out);
  if (block_tokens == 64) return chain_constant<64>(tokens, blocks, parent, out);
  std::vector<unsigned char> scratch(8 + 4 * block_tokens);
  chain_sized(tokens, blocks, block_tokens, parent, out, scratch.data());
}

}  // namespace dovecote
