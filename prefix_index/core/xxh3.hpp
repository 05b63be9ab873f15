// XXH3, 64-bit variant, written from the public specification of the algorithm.
//
// Bytes and a seed in, one number out: equal to every other implementation for every length. No
// allocation, no table but the published secret. Tested against the xxhash library.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dovecote::xxh3 {

inline constexpr std::uint32_t kPrime32[3] = {0x9E3779B1u, 0x85EBCA77u, 0xC2B2AE3Du};
inline constexpr std::uint64_t kPrime64[5] = {
    0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u, 0x85EBCA77C2B2AE63u, 0x27D4EB2F165667C5u};
inline constexpr std::uint64_t kMix1 = 0x165667919E3779F9u;
inline constexpr std::uint64_t kMix2 = 0x9FB21C651E98DF25u;

inline constexpr std::size_t kSecretBytes = 192;
inline constexpr unsigned char kSecret[kSecretBytes] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

inline constexpr std::size_t kStripeBytes = 64;
inline constexpr std::size_t kStripesPerBlock = (kSecretBytes - kStripeBytes) / 8;
inline constexpr std::size_t kShortestSecret = 136;

inline std::uint64_t swap64(std::uint64_t value) {
  std::uint64_t swapped = 0;
  for (int byte = 0; byte < 8; ++byte) swapped |= ((value >> (8 * byte)) & 0xFF) << (56 - 8 * byte);
  return swapped;
}

inline std::uint32_t swap32(std::uint32_t value) { return static_cast<std::uint32_t>(swap64(value) >> 32); }

inline std::uint64_t read64(const unsigned char* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return std::endian::native == std::endian::little ? value : swap64(value);
}

inline std::uint64_t read32(const unsigned char* at) {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return std::endian::native == std::endian::little ? value : swap32(value);
}

// Both halves of the 128-bit product, folded.
inline std::uint64_t fold_product(std::uint64_t left, std::uint64_t right) {
#if defined(__SIZEOF_INT128__)
  const auto product = static_cast<unsigned __int128>(left) * right;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
#else
  const std::uint64_t low = (left & 0xFFFFFFFFu) * (right & 0xFFFFFFFFu);
  const std::uint64_t cross_left = (left >> 32) * (right & 0xFFFFFFFFu);
  const std::uint64_t cross_right = (left & 0xFFFFFFFFu) * (right >> 32);
  const std::uint64_t middle = (low >> 32) + (cross_left & 0xFFFFFFFFu) + cross_right;
  const std::uint64_t high = (left >> 32) * (right >> 32) + (cross_left >> 32) + (middle >> 32);
  return high ^ ((middle << 32) | (low & 0xFFFFFFFFu));
#endif
}

inline std::uint64_t avalanche(std::uint64_t hash) {
  hash = (hash ^ (hash >> 37)) * kMix1;
  return hash ^ (hash >> 32);
}

inline std::uint64_t avalanche_short(std::uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kPrime64[1];
  hash = (hash ^ (hash >> 29)) * kPrime64[2];
  return hash ^ (hash >> 32);
}

inline std::uint64_t mix16(const unsigned char* in, const unsigned char* secret, std::uint64_t seed) {
  return fold_product(read64(in) ^ (read64(secret) + seed), read64(in + 8) ^ (read64(secret + 8) - seed));
}

inline std::uint64_t hash_upto_16(const unsigned char* in, std::size_t bytes, std::uint64_t seed) {
  if (bytes > 8) {
    const std::uint64_t low = read64(in) ^ ((read64(kSecret + 24) ^ read64(kSecret + 32)) + seed);
    const std::uint64_t high = read64(in + bytes - 8) ^ ((read64(kSecret + 40) ^ read64(kSecret + 48)) - seed);
    return avalanche(bytes + swap64(low) + high + fold_product(low, high));
  }
  if (bytes >= 4) {
    seed ^= static_cast<std::uint64_t>(swap32(static_cast<std::uint32_t>(seed))) << 32;
    const std::uint64_t word = read32(in + bytes - 4) + (read32(in) << 32);
    std::uint64_t hash = word ^ ((read64(kSecret + 8) ^ read64(kSecret + 16)) - seed);
    hash ^= std::rotl(hash, 49) ^ std::rotl(hash, 24);
    hash *= kMix2;
    hash ^= (hash >> 35) + bytes;
    hash *= kMix2;
    return hash ^ (hash >> 28);
  }
  if (bytes > 0) {
    const std::uint32_t word = (static_cast<std::uint32_t>(in[0]) << 16) |
                               (static_cast<std::uint32_t>(in[bytes >> 1]) << 24) | in[bytes - 1] |
                               (static_cast<std::uint32_t>(bytes) << 8);
    return avalanche_short(word ^ ((read32(kSecret) ^ read32(kSecret + 4)) + seed));
  }
  return avalanche_short(seed ^ (read64(kSecret + 56) ^ read64(kSecret + 64)));
}

inline std::uint64_t hash_upto_128(const unsigned char* in, std::size_t bytes, std::uint64_t seed) {
  std::uint64_t sum = bytes * kPrime64[0];
  for (std::size_t pair = (bytes - 1) / 32 + 1; pair-- > 0;) {
    sum += mix16(in + 16 * pair, kSecret + 32 * pair, seed);
    sum += mix16(in + bytes - 16 * (pair + 1), kSecret + 32 * pair + 16, seed);
  }
  return avalanche(sum);
}

inline std::uint64_t hash_upto_240(const unsigned char* in, std::size_t bytes, std::uint64_t seed) {
  std::uint64_t sum = bytes * kPrime64[0];
  for (std::size_t at = 0; at < 8; ++at) sum += mix16(in + 16 * at, kSecret + 16 * at, seed);
  sum = avalanche(sum);
  for (std::size_t at = 8; at < bytes / 16; ++at) sum += mix16(in + 16 * at, kSecret + 16 * (at - 8) + 3, seed);
  return avalanche(sum + mix16(in + bytes - 16, kSecret + kShortestSecret - 17, seed));
}

#if defined(__SSE2__)
inline void add_stripe(std::uint64_t* lanes, const unsigned char* in, const unsigned char* secret) {
  const auto load = [](const auto* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
  for (int pair = 0; pair < 4; ++pair) {
    const __m128i words = load(in + 16 * pair);
    const __m128i keyed = _mm_xor_si128(words, load(secret + 16 * pair));
    const __m128i product = _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32));
    const __m128i crossed = _mm_shuffle_epi32(words, _MM_SHUFFLE(1, 0, 3, 2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes + 2 * pair),
                     _mm_add_epi64(load(lanes + 2 * pair), _mm_add_epi64(product, crossed)));
  }
}
#else
inline void add_stripe(std::uint64_t* lanes, const unsigned char* in, const unsigned char* secret) {
  for (int lane = 0; lane < 8; ++lane) {
    const std::uint64_t word = read64(in + 8 * lane);
    const std::uint64_t keyed = word ^ read64(secret + 8 * lane);
    lanes[lane ^ 1] += word;
    lanes[lane] += (keyed & 0xFFFFFFFFu) * (keyed >> 32);
  }
}
#endif

// Of more than 240 bytes; the first stripe may lie elsewhere than the rest.
inline std::uint64_t hash_stripes(const unsigned char* first, const unsigned char* rest, std::size_t bytes,
                                  const unsigned char* secret) {
  std::uint64_t lanes[8] = {kPrime32[2], kPrime64[0], kPrime64[1], kPrime64[2],
                            kPrime64[3], kPrime32[1], kPrime64[4], kPrime32[0]};
  const std::size_t stripes = (bytes - 1) / kStripeBytes;
  // Sums may be made in any order until they are scrambled. A chain waits for the hash before: what is new comes last.
  const bool comes_last = stripes < kStripesPerBlock;
  if (!comes_last) add_stripe(lanes, first, secret);
  for (std::size_t stripe = 1; stripe < stripes; ++stripe) {
    add_stripe(lanes, rest + (stripe - 1) * kStripeBytes, secret + 8 * (stripe % kStripesPerBlock));
    if (stripe % kStripesPerBlock != kStripesPerBlock - 1) continue;
    for (int lane = 0; lane < 8; ++lane) {
      const std::uint64_t key = read64(secret + kSecretBytes - kStripeBytes + 8 * lane);
      lanes[lane] = (lanes[lane] ^ (lanes[lane] >> 47) ^ key) * kPrime32[0];
    }
  }
  add_stripe(lanes, rest + bytes - 2 * kStripeBytes, secret + kSecretBytes - kStripeBytes - 7);
  if (comes_last) add_stripe(lanes, first, secret);
  std::uint64_t sum = bytes * kPrime64[0];
  for (int lane = 0; lane < 8; lane += 2)
    sum += fold_product(lanes[lane] ^ read64(secret + 11 + 8 * lane), lanes[lane + 1] ^ read64(secret + 19 + 8 * lane));
  return avalanche(sum);
}

inline std::uint64_t hash_long(const unsigned char* in, std::size_t bytes, std::uint64_t seed) {
  if (seed == 0) return hash_stripes(in, in + kStripeBytes, bytes, kSecret);
  unsigned char secret[kSecretBytes];
  for (std::size_t at = 0; at < kSecretBytes; at += 8) {
    const std::uint64_t word = read64(kSecret + at) + (at % 16 == 0 ? seed : 0 - seed);
    for (int byte = 0; byte < 8; ++byte) secret[at + byte] = static_cast<unsigned char>(word >> (8 * byte));
  }
  return hash_stripes(in, in + kStripeBytes, bytes, secret);
}

inline std::uint64_t hash(const unsigned char* in, std::size_t bytes, std::uint64_t seed) {
  if (bytes <= 16) return hash_upto_16(in, bytes, seed);
  if (bytes <= 128) return hash_upto_128(in, bytes, seed);
  if (bytes <= 240) return hash_upto_240(in, bytes, seed);
  return hash_long(in, bytes, seed);
}

}  // namespace dovecote::xxh3
