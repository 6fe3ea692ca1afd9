// Variants and weight types that a program adds to the kernels. A separate program, because entries
// stay registered.
#include <cmath>
#include <cstdlib>
#include <deque>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "kernels/formats/converted_type.h"
#include "kernels/kernels.h"
#include "kernels/register_table.h"

namespace troupe::test {
namespace {

using namespace kernels;

// Tables and types live as long as the program.
template <class T>
T& forever(T value) {
  static std::mutex mutex;
  static std::deque<T> all;  // its elements do not move
  const std::lock_guard lock(mutex);
  return all.emplace_back(std::move(value));
}

KernelTable& scalar_named(std::string_view name) {
  KernelTable& table = forever(*find_table("scalar"));
  table.name = name;
  return table;
}

bool is_refused(const Status& status, const std::string& why) {
  if (!status) UNSCOPED_INFO("message: " << status.error().message);
  return !status && status.error().code == ErrorCode::invalid_argument &&
         status.error().message.find(why) != std::string::npos;
}

TEST_CASE("a registered variant is found by its name, listed last, and never the best") {
  const KernelTable& best = best_table();
  const auto all = all_tables(), supported = supported_tables();
  const KernelTable& mine = scalar_named("mine");
  REQUIRE(register_table(mine));
  CHECK(find_table("mine") == &mine);
  CHECK(is_supported(mine));
  CHECK(all_tables().back() == &mine);
  CHECK(supported_tables().back() == &mine);
  CHECK(&best_table() == &best);
  CHECK(all_tables().size() == all.size() + 1);  // spans that were taken before stay as they are
  CHECK((all.back() == &best || !is_supported(*all.back())));
  CHECK(supported.back() == &best);
}

TEST_CASE("a variant's name is unique, at most 16 characters, of a-z, 0-9 and _") {
  CHECK(is_refused(register_table(scalar_named("scalar")), "'scalar' is there already"));
  REQUIRE(register_table(scalar_named("twice")));
  CHECK(is_refused(register_table(scalar_named("twice")), "'twice' is there already"));
  for (const char* name : {"", "with-dash", "Upper", "a_name_of_17_char", "a b"})
    CHECK(is_refused(register_table(scalar_named(name)), "needs a name of 1 to 16"));
  CHECK(find_table("with-dash") == nullptr);
}

TEST_CASE("a variant that lacks a function is refused, with the function's name") {
  const auto refusal = [](void (*spoil)(KernelTable&), const std::string& why) {
    KernelTable& table = scalar_named("lacking");
    spoil(table);
    return is_refused(register_table(table), why);
  };
  CHECK(refusal([](KernelTable& t) { t.silu_mul = nullptr; }, "lacks a function: silu_mul"));
  CHECK(refusal([](KernelTable& t) { t.exp_tile = nullptr; }, "lacks a function: exp_tile"));
  CHECK(refusal([](KernelTable& t) { t.gated_matmul = nullptr; }, "lacks a function: gated_matmul"));
  CHECK(refusal([](KernelTable& t) { t.sums_above = nullptr; }, "lacks a function: sums_above"));
  CHECK(refusal([](KernelTable& t) { t.prepare[1] = nullptr; }, "lacks what multiplies with Q8_0"));
  CHECK(refusal([](KernelTable& t) { t.matmul = [](WeightType, Layout) -> Matmul* { return nullptr; }; },
                "lacks what multiplies with F32"));
  CHECK(refusal([](KernelTable& t) { t.layout = [](WeightType) { return Layout::tiles; }; },
                "lacks what multiplies with F32"));
  CHECK(refusal([](KernelTable& t) { t.max_rows = 0; }, "takes no rows"));
  CHECK(find_table("lacking") == nullptr);
}

TEST_CASE("variants are registered by several threads at once while others read the list") {
  const std::size_t before = all_tables().size();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 4; ++i) {
        const std::string& name = forever("thread_" + std::to_string(t) + "_" + std::to_string(i));
        const bool registered = static_cast<bool>(register_table(scalar_named(name)));
        if (!registered || find_table(name) == nullptr) std::abort();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(all_tables().size() == before + 16);
}

TEST_CASE("more variants than there is room for are an error") {
  Status last = Ok{};
  for (std::size_t i = 0; i <= kMaxRegisteredTables && last; ++i)
    last = register_table(scalar_named(forever("one_of_" + std::to_string(i))));
  CHECK(is_refused(last, "no room for kernel variant"));
}

// Two weights in three bytes: float16s of which the low byte of the second is lost.
void dequantize_lossy(const std::byte* group, float* out) {
  out[0] = static_cast<float>(std::to_integer<int>(group[0]));
  out[1] = std::ldexp(static_cast<float>(std::to_integer<int>(group[1])), std::to_integer<int>(group[2]));
}

ConvertedType& lossy(WeightType becomes, std::string_view name, std::uint32_t number) {
  return forever(
      ConvertedType{.info = {.type = becomes, .name = name, .gguf_number = number, .group_size = 2, .group_bytes = 3},
                    .version = 1,
                    .dequantize = dequantize_lossy});
}

TEST_CASE("a registered type is found by its number") {
  const ConvertedType& type = lossy(WeightType::f32, "LOSSY", 1000);
  CHECK(converted_type_of_gguf(1000) == nullptr);
  REQUIRE(register_type(type));
  CHECK(converted_type_of_gguf(1000) == &type);
  CHECK(converted_types().back() == &type);
  CHECK_FALSE(weight_type_of_gguf(1000));
}

TEST_CASE("inconsistent types, and names or numbers that another type has, are refused") {
  REQUIRE(register_type(lossy(WeightType::f32, "TAKEN", 1001)));
  CHECK(is_refused(register_type(lossy(WeightType::f32, "TAKEN", 1002)), "there is TAKEN with 1001"));
  CHECK(is_refused(register_type(lossy(WeightType::f32, "OTHER", 1001)), "there is TAKEN with 1001"));
  CHECK(is_refused(register_type(lossy(WeightType::f32, "Q4_K", 1002)), "there is Q4_K with 12"));
  CHECK(is_refused(register_type(lossy(WeightType::f32, "OTHER", 12)), "there is Q4_K with 12"));
  CHECK(is_refused(register_type(lossy(WeightType::q8_0, "OTHER", 1002)), "F32, F16 or BF16, not Q8_0"));
  CHECK(is_refused(register_type(lossy(WeightType::f32, "", 1002)), "needs a name"));
  const auto refusal = [](void (*spoil)(ConvertedType&), const std::string& why) {
    ConvertedType& type = lossy(WeightType::f32, "OTHER", 1002);
    spoil(type);
    return is_refused(register_type(type), why);
  };
  CHECK(refusal([](ConvertedType& t) { t.info.group_size = 0; }, "groups of 0 weights"));
  CHECK(refusal([](ConvertedType& t) { t.info.group_size = 4097; }, "groups of 4097 weights"));
  CHECK(refusal([](ConvertedType& t) { t.info.group_bytes = 0; }, "groups of 0 bytes"));
  CHECK(refusal([](ConvertedType& t) { t.info.tail_bytes = 32; }, "cannot have a tail"));
  CHECK(refusal([](ConvertedType& t) { t.dequantize = nullptr; }, "needs a function"));
  CHECK(converted_type_of_gguf(1002) == nullptr);
}

TEST_CASE("weights are rounded to the converted type, to nearest even, and must be finite in it") {
  const auto becomes = [](WeightType to, int mantissa, int exponent, float* value) {
    const ConvertedType type = {.info = {.type = to, .name = "X", .gguf_number = 0, .group_size = 2, .group_bytes = 3},
                                .version = 1,
                                .dequantize = dequantize_lossy};
    const std::byte group[] = {std::byte{7}, static_cast<std::byte>(mantissa), static_cast<std::byte>(exponent)};
    std::byte out[8];
    const bool finite = convert(type, group, out, 2);
    float values[2];
    dequantize(to, out, values, 2);
    CHECK(values[0] == 7.0f);
    *value = values[1];
    return finite;
  };
  float value = 0;
  CHECK(becomes(WeightType::f32, 255, 100, &value));
  CHECK(value == std::ldexp(255.0f, 100));
  CHECK(becomes(WeightType::f16, 255, 8, &value));  // 65,280
  CHECK(value == 65280.0f);
  CHECK_FALSE(becomes(WeightType::f16, 255, 9, &value));  // above 65,504
  CHECK(becomes(WeightType::bf16, 255, 119, &value));
  CHECK_FALSE(becomes(WeightType::f32, 255, 121, &value));

  // 8 bits of mantissa: 257 and 259 are ties between two values.
  const auto as_bf16 = [](float from) {
    static float given;
    given = from;
    const ConvertedType type = {
        .info = {.type = WeightType::bf16, .name = "X", .gguf_number = 0, .group_size = 1, .group_bytes = 1},
        .version = 1,
        .dequantize = [](const std::byte*, float* out) { *out = given; }};
    std::byte group{}, out[2];
    CHECK(convert(type, &group, out, 1) == std::isfinite(from));
    float to = 0;
    dequantize(WeightType::bf16, out, &to, 1);
    return to;
  };
  CHECK(as_bf16(257.0f) == 256.0f);
  CHECK(as_bf16(259.0f) == 260.0f);
  CHECK(as_bf16(-257.5f) == -258.0f);
  CHECK(as_bf16(0.0f) == 0.0f);
  as_bf16(std::numeric_limits<float>::quiet_NaN());
  as_bf16(std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace troupe::test
