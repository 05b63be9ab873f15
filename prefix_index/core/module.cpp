// Native module of prefix_index: chained block hashing. Holds no state and touches no Python object
// while it computes, so the interpreter's lock is released.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "xxh3.hpp"

namespace nb = nanobind;

namespace {

using Tokens = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void write_little(unsigned char* to, std::uint64_t value) {
  if constexpr (std::endian::native != std::endian::little) value = dovecote::xxh3::swap64(value);
  std::memcpy(to, &value, sizeof value);
}

// Hash of each full block of `tokens`, chained: XXH3-64 of (hash before, 8 bytes; tokens, 4 bytes each).
// `block_tokens` is a constant of the type for the usual sizes, so that the compiler unrolls the hash.
template <typename Size>
std::vector<std::uint64_t> chain(const std::uint32_t* tokens, std::size_t count, Size block_tokens,
                                 std::uint64_t parent) {
  std::vector<std::uint64_t> hashes;
  hashes.reserve(count / block_tokens);
  std::vector<unsigned char> block(8 + 4 * block_tokens);
  for (std::size_t start = 0; start + block_tokens <= count; start += block_tokens) {
    write_little(block.data(), parent);
    std::memcpy(block.data() + 8, tokens + start, 4 * block_tokens);
    if constexpr (std::endian::native != std::endian::little) {
      for (std::size_t at = 8; at < block.size(); at += 4) {
        std::swap(block[at], block[at + 3]);
        std::swap(block[at + 1], block[at + 2]);
      }
    }
    parent = dovecote::xxh3::hash(block.data(), 8 + 4 * block_tokens, 0);
    hashes.push_back(parent);
  }
  return hashes;
}

template <std::size_t kTokens>
using Constant = std::integral_constant<std::size_t, kTokens>;

std::vector<std::uint64_t> chain_any(const std::uint32_t* tokens, std::size_t count, std::size_t block_tokens,
                                     std::uint64_t parent) {
  if (block_tokens == 16) return chain(tokens, count, Constant<16>{}, parent);
  if (block_tokens == 32) return chain(tokens, count, Constant<32>{}, parent);
  if (block_tokens == 64) return chain(tokens, count, Constant<64>{}, parent);
  return chain(tokens, count, block_tokens, parent);
}

std::vector<std::uint64_t> block_hashes(const Tokens& tokens, std::size_t block_tokens, std::uint64_t seed) {
  if (block_tokens == 0) throw nb::value_error("block_tokens must be 1 or more");
  if (block_tokens > tokens.shape(0)) return {};
  const std::uint32_t* data = tokens.data();
  const std::size_t count = tokens.shape(0);
  nb::gil_scoped_release released;
  return chain_any(data, count, block_tokens, seed);
}

std::uint64_t xxh3_64(nb::bytes data, std::uint64_t seed) {
  return dovecote::xxh3::hash(reinterpret_cast<const unsigned char*>(data.data()), data.size(), seed);
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "Chained block hashing, compiled.";
  module.def("block_hashes", &block_hashes, nb::arg("tokens"), nb::arg("block_tokens"), nb::arg("seed"));
  module.def("xxh3_64", &xxh3_64, nb::arg("data"), nb::arg("seed"));
}
