#include "engine/model/text_vectors.h"

#include <limits>

namespace troupe::engine {

void TextVectors::encode(Team& team, std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
                         Workspace& workspace, float* rows) const {
  if (texts.empty()) return;
  const std::unique_ptr<Reading> reading = read(texts, pooling, rows);
  while (!reading->advance(team, workspace, std::numeric_limits<std::size_t>::max())) {
  }
}

}  // namespace troupe::engine
