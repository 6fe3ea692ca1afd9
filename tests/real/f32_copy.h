// A model's file with all its weights as the float32 numbers that they stand for.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/formats/model_file.h"
#include "tests/engine/gguf_copy.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {

// Four times as large as the original, about; removed with `folder`.
inline std::string f32_copy(const std::string& path, const TempFolder& folder) {
  const auto file = engine::open_gguf(path);
  if (!file) FAIL(file.error().message);
  constexpr std::uint32_t kF32 = 0;
  GgufWriter header;
  copy_metadata(**file, header);
  std::uint64_t offset = 0;
  for (const engine::TensorInfo& tensor : (*file)->tensors()) {
    header.add_tensor_at(tensor.name, tensor.shape, kF32, offset);
    offset += tensor.columns() * tensor.rows() * sizeof(float);
    REQUIRE(offset % header.alignment == 0);
  }
  const std::string copy = folder.path("f32.gguf");
  std::ofstream out(copy, std::ios::binary);
  const std::string head = header.bytes();
  out.write(head.data(), static_cast<std::streamsize>(head.size()));
  for (const engine::TensorInfo& tensor : (*file)->tensors()) {
    REQUIRE(tensor.converted_from == nullptr);
    std::vector<float> row(tensor.columns());
    const std::size_t row_bytes = tensor.bytes.size() / tensor.rows();
    for (std::uint64_t i = 0; i < tensor.rows(); ++i) {
      kernels::dequantize(tensor.type, tensor.bytes.data() + i * row_bytes, row.data(), row.size());
      out.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
    }
  }
  REQUIRE(out.flush());
  return copy;
}

}  // namespace troupe::test
