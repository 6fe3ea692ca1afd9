// Pools the hidden states of a text's tokens into one vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::engine {

enum class Pooling : std::uint8_t {
  mean,  // of all tokens, with the special tokens around the text
  cls,   // the first token
  last,  // the last token
};
[[nodiscard]] std::string_view name(Pooling pooling);

struct PoolingOptions {
  Pooling pooling = Pooling::mean;
  bool normalise = true;  // to a length of 1; a zero vector stays unchanged
};

// Pools hidden [num_rows, dim], num_rows >= 1, to out [dim]. Adds rows in ascending order, so that equal rows give
// equal bits.
void pool_rows(const float* hidden, std::size_t num_rows, std::size_t dim, const PoolingOptions& options, float* out);

}  // namespace troupe::engine
