// A prompt's hashes by block size, read one by one as they are asked for.
#pragma once

#include <vector>

#include "types.hpp"

namespace dovecote {

struct Chain {
  std::uint32_t block_tokens;
  std::size_t count;
  const void* hashes;
  Place (*read)(const void* hashes, std::size_t at);
  Place at(std::size_t index) const { return read(hashes, index); }
};

//: The first of a size counts.
class Chains {
 public:
  void add(const Chain& chain) {
    if (find(chain.block_tokens) == nullptr) all_.push_back(chain);
  }
  const Chain* find(std::uint32_t block_tokens) const {
    for (const Chain& chain : all_)
      if (chain.block_tokens == block_tokens) return &chain;
    return nullptr;
  }

 private:
  std::vector<Chain> all_;
};

}  // namespace dovecote
