// A weight type of one's own: powers of two, 4 bits each, in files that this program can then load.
//
//   example_weight_type MODEL.gguf
//
// Writes the model's matrices in the new type, and the same weights as BF16; both must give the same bits on every
// variant. What a type may be is said in kernels/formats/converted_type.h. Ends with 1 if anything is not as it should
// be.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <troupe/engine/engine.h>
#include <troupe/engine/evaluation/eval.h>
#include <troupe/kernels/formats/converted_type.h>
#include <troupe/tests/engine/gguf_copy.h>  // writes GGUF files

namespace {

using namespace troupe;

// A group of 32: the largest exponent + 128, then a nibble each: 0, or a sign and how many powers of two below + 1.
constexpr std::uint32_t kGroupSize = 32, kGroupBytes = 17;
constexpr std::uint32_t kBf16 = 30, kPow2 = 4242;  // GGUF's numbers; that of a new type must be free

void dequantize_pow2(const std::byte* group, float* out) {
  const int largest = std::to_integer<int>(group[0]) - 128;
  for (std::uint32_t i = 0; i < kGroupSize; ++i) {
    const int code = std::to_integer<int>(group[1 + i / 2] >> (i % 2 * 4)) & 0x0f;
    const float value = (code & 7) == 0 ? 0.0f : std::ldexp(1.0f, largest + 1 - (code & 7));
    out[i] = (code & 8) != 0 ? -value : value;
  }
}

constexpr kernels::ConvertedType kPow2Type = {
    .info = {.type = kernels::WeightType::bf16,  // what it becomes: exact, for a power of two has one bit
             .name = "POW2",
             .gguf_number = kPow2,
             .group_size = kGroupSize,
             .group_bytes = kGroupBytes},
    .version = 1,
    .dequantize = dequantize_pow2,
};

// The other direction, for the files of this example: the nearest power of two, by its logarithm.
std::string quantize_pow2(const std::vector<float>& weights) {
  std::string bytes;
  for (std::size_t begin = 0; begin < weights.size(); begin += kGroupSize) {
    int largest = -127;
    for (std::size_t i = begin; i < begin + kGroupSize; ++i)
      if (weights[i] != 0) largest = std::max(largest, static_cast<int>(std::lround(std::log2(std::fabs(weights[i])))));
    std::string group(kGroupBytes, '\0');
    group[0] = static_cast<char>(largest + 128);
    for (std::size_t i = 0; i < kGroupSize; ++i) {
      const float weight = weights[begin + i];
      const long below = weight == 0 ? 7 : largest - std::lround(std::log2(std::fabs(weight)));
      const int code = below >= 7 ? 0 : static_cast<int>(below + 1) | (weight < 0 ? 8 : 0);
      group[1 + i / 2] = static_cast<char>(group[1 + i / 2] | code << (i % 2 * 4));
    }
    bytes += group;
  }
  return bytes;
}

std::string as_bf16(const std::string& groups) {
  std::string bytes;
  float values[kGroupSize];
  for (std::size_t at = 0; at < groups.size(); at += kGroupBytes) {
    dequantize_pow2(reinterpret_cast<const std::byte*>(groups.data()) + at, values);
    for (const float value : values) bytes.append(reinterpret_cast<const char*>(&value) + 2, 2);
  }
  return bytes;
}

// The model with all its matrices in the new type, or in the one that it becomes.
std::string rewritten(const engine::ModelFile& file, bool becomes) {
  test::GgufWriter out;
  test::copy_metadata(file, out);
  for (const engine::TensorInfo& tensor : file.tensors()) {
    if (tensor.shape.size() != 2) {
      out.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, test::to_string(tensor.bytes));
      continue;
    }
    std::vector<float> weights(tensor.rows() * tensor.columns());
    kernels::dequantize(tensor.type, tensor.bytes.data(), weights.data(), weights.size());
    const std::string groups = quantize_pow2(weights);
    out.add_tensor(tensor.name, tensor.shape, becomes ? kBf16 : kPow2, becomes ? as_bf16(groups) : groups);
  }
  return out.bytes();
}

bool all_well = true;
void check(bool good, std::string_view what, std::string_view where = "") {
  if (!good)
    std::fprintf(stderr, "wrong: %.*s %.*s\n", static_cast<int>(what.size()), what.data(),
                 static_cast<int>(where.size()), where.data());
  all_well = all_well && good;
}

Result<std::shared_ptr<engine::LoadedModel>> load(const std::string& path, std::string_view kernels,
                                                  engine::Team& team) {
  engine::LoadOptions options;
  options.kernels = kernels;
  options.context = 64;
  options.num_blocks = 2;
  options.team = &team;
  return engine::LoadedModel::load(path, options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]), 2;
  const auto source = engine::open_gguf(argv[1]);
  if (!source) return std::fprintf(stderr, "%s\n", source.error().message.c_str()), 1;
  const test::TemporaryFile in_pow2(rewritten(**source, false)), in_bf16(rewritten(**source, true));

  engine::Team team(2);
  const auto unknown = load(in_pow2.path(), "", team);
  check(!unknown && unknown.error().message.find("weight type 4242, which is not supported") != std::string::npos,
        "before it is registered the type is refused");
  if (const Status registered = kernels::register_type(kPow2Type); !registered)
    return std::fprintf(stderr, "%s\n", registered.error().message.c_str()), 1;

  const std::vector<TokenId> tokens = {1, 20, 300, 44, 5, 67, 89, 10, 111, 212};
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    const auto ours = load(in_pow2.path(), table->name, team), theirs = load(in_bf16.path(), table->name, team);
    if (!ours) return std::fprintf(stderr, "%s\n", ours.error().message.c_str()), 1;
    if (!theirs) return std::fprintf(stderr, "%s\n", theirs.error().message.c_str()), 1;
    const auto logits = engine::evaluate(**ours, team, tokens), expected = engine::evaluate(**theirs, team, tokens);
    check(logits && expected && *logits == *expected, "the same bits as BF16 with", table->name);
    std::printf("%-12s %s\n", std::string(table->name).c_str(), (*ours)->info().weight_types.c_str());
  }
  return all_well ? 0 : 1;
}
