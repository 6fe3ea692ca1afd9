// Walks over all resident weights of a model.
#pragma once

#include <span>
#include <vector>

#include "engine/weights/packed_matrix.h"

namespace troupe::engine {

// The structs of weights have a member `visit(WeightVisitor&)`, which passes on each of their parts.
class WeightVisitor {
 public:
  virtual ~WeightVisitor() = default;
  virtual void matrix(const PackedMatrix& matrix) = 0;      // not empty; it stays where it is
  virtual void vector(std::span<const float> numbers) = 0;  // likewise

  // Parts that are empty are left out.
  template <class... Parts>
  void all(const Parts&... parts) {
    (one(parts), ...);
  }

 private:
  void one(const PackedMatrix& part) {
    if (part) matrix(part);
  }
  void one(const std::vector<float>& part) {
    if (!part.empty()) vector(part);
  }
  template <class Struct>
  void one(const Struct& part) {
    part.visit(*this);
  }
  template <class Struct>
  void one(const std::vector<Struct>& parts) {
    for (const Struct& part : parts) one(part);
  }
};

}  // namespace troupe::engine
