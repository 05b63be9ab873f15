// The rules of cache groups: what a group must have before a boundary so that a prompt can go on from there.
//
// The core knows the kinds of `prefix_index.components`; any other is asked for by its number.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "events.hpp"

namespace dovecote {

enum class Rule : std::uint8_t { kUnknown, kPrefix, kWindow, kState, kForeign };
enum class Recovery : std::uint8_t { kNone, kRebuild, kReplay };

struct Component {
  Rule rule = Rule::kUnknown;
  Recovery recovery = Recovery::kNone;
  std::uint64_t window_tokens = 0;
  //: Number by which whoever registered it knows it.
  std::uint32_t id = 0;
};

//: The kinds that are registered.
struct Registry {
  std::function<Component(const std::optional<std::string_view>& kind, const OptionalNumber& group,
                          const OptionalNumber& window)>
      find;
  //: First token that a component of a foreign rule needs for the boundary at `end_tokens`.
  std::function<std::uint64_t(std::uint32_t id, std::uint64_t end_tokens)> find_foreign_start;

  std::uint64_t find_start(const Component& component, std::uint64_t end_tokens) const {
    switch (component.rule) {
      case Rule::kWindow:
        // The token at the boundary is in its own window.
        return end_tokens >= component.window_tokens ? end_tokens - component.window_tokens + 1 : 0;
      case Rule::kState:
        return end_tokens > 0 ? end_tokens - 1 : 0;
      case Rule::kForeign:
        return end_tokens > 0 ? find_foreign_start(component.id, end_tokens) : 0;
      default:
        return 0;
    }
  }
};

}  // namespace dovecote
