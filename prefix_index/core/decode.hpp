// Bytes of one batch, in any public generation, to events.
#pragma once

#include <string_view>

#include "events.hpp"

namespace dovecote {

// Events of a payload `[ts, events, dp_rank?, ...]` into `batch`, arrays and maps alike.
//
// Accepts only what `wire.dialects.decode_batch` reads without leaving anything out, and then reads the
// same. False for all else (damaged bytes, unknown types, rare forms such as texts that are not ASCII):
// that decoder, which says why, must be asked. Nothing is applied before the whole batch was read.
bool decode_batch(std::string_view payload, Batch& batch);

}  // namespace dovecote
