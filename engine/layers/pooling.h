// One vector out of the hidden states of a text's tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::engine {

enum class Pooling : std::uint8_t {
  mean,  // of all tokens, those that surround the text too
  cls,   // the first token
  last,  // the last token
};
[[nodiscard]] std::string_view name(Pooling pooling);
[[nodiscard]] std::optional<Pooling> find_pooling(std::string_view name);

struct PoolingOptions {
  Pooling pooling = Pooling::mean;
  bool normalise = true;  // to a length of 1; a vector of zeros stays as it is
};

// out [dim] from hidden [num_rows, dim], num_rows >= 1. In ascending order of rows, so that equal rows give equal bits.
void pool_rows(const float* hidden, std::size_t num_rows, std::size_t dim, const PoolingOptions& options, float* out);

}  // namespace troupe::engine
