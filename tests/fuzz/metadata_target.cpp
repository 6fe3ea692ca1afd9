// Models of metadata alone, with values of any type under the keys that are read (docs/models.md). The first byte of an
// input chooses the model; then follow keys, each with a type and a value.
#include "tests/engine/metadata_cases.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::test {
namespace {

engine::MetadataValue take_value(fuzz::Input& in) {
  constexpr std::size_t kMaxElements = 16;
  const auto list_of = [&](auto take) {
    std::vector<decltype(take())> list;
    for (std::size_t count = in.byte() % kMaxElements; count > 0; --count) list.push_back(take());
    return list;
  };
  const auto text = [&] { return std::string(in.until('\0')); };
  switch (in.byte() % 10) {
    case 0:
      return in.number<std::int64_t>();
    case 1:
      return std::int64_t{in.number<std::int8_t>()};
    case 2:
      return in.number<double>();
    case 3:
      return double{in.number<float>()};
    case 4:
      return in.byte() % 2 == 1;
    case 5:
      return text();
    case 6:
      return list_of([&] { return std::int64_t{in.number<std::int8_t>()}; });
    case 7:
      return list_of([&] { return double{in.number<float>()}; });
    case 8:
      return list_of(text);
    default:
      return engine::SkippedValue{"an array of arrays"};
  }
}

}  // namespace
}  // namespace troupe::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  static const auto models = test::metadata_model_names();
  static const auto cases = test::metadata_cases();
  fuzz::Input in(data, size);
  test::MetadataFile file = test::metadata_model(models[in.byte() % models.size()]);
  const std::string family = std::get<std::string>(*file.find("general.architecture"));
  for (int changes = 0; changes < 8 && !in.empty(); ++changes) {
    const std::string key = test::key_in(cases[in.byte() % cases.size()].key, family);
    if (in.byte() % 8 == 0)
      file.remove(key);
    else
      file[key] = test::take_value(in);
  }
  const std::string verdict = test::metadata_verdict(file);
  if (verdict.starts_with("refused")) fuzz::check_message(verdict);
  TROUPE_ASSERT(verdict == test::metadata_verdict(file));
  return 0;
}
