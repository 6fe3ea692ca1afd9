// The time of finding calls of tools in an answer while it comes, in each format, for a token of four bytes: Google
// Benchmark's flags.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/tools/tool_call_parser.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/chat/values/json.h"

namespace {

using namespace troupe::engine::chat;

constexpr std::size_t kTokenBytes = 4;

std::string text_of(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "The quick brown fox <jumps> over [the] lazy {dog}, and `says` so. ";
  return text;
}

// Of a format that is not JSON the calls are those of the generic one.
const ToolFormat& format_of(const ToolFormat& format) {
  const bool is_json =
      format.syntax == CallSyntax::object || format.syntax == CallSyntax::keyed || format.syntax == CallSyntax::named;
  return is_json ? format : generic_tool_format();
}

void run(benchmark::State& state, const ToolFormat& format, const std::string& answer) {
  const auto tools = std::make_shared<const ToolSet>(
      *ToolSet::make(*parse_json(R"([{"type":"function","function":{"name":"write_file"}}])")));
  const std::string_view whole = answer;
  for (auto _ : state) {
    ToolCallParser parser(format, tools);
    for (std::size_t at = 0; at < whole.size(); at += kTokenBytes)
      benchmark::DoNotOptimize(parser.push(whole.substr(at, kTokenBytes)));
    benchmark::DoNotOptimize(parser.finish());
  }
  const auto tokens = static_cast<double>((whole.size() + kTokenBytes - 1) / kTokenBytes);
  state.counters["token"] =
      benchmark::Counter(tokens, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string text = text_of(64 << 10);
  std::string argument = text;
  std::ranges::replace(argument, '"', '\'');
  for (const ToolFormat& format : tool_formats()) {
    const std::string name(format.name);
    const std::vector<WrittenCall> one{{"write_file", "{\"text\": \"" + argument + "\"}"}};
    const std::vector<WrittenCall> many(32, WrittenCall{"write_file", R"({"path": "a.txt", "text": "hello"})"});
    const std::string one_call = write_calls(format_of(format), one), many_calls = write_calls(format_of(format), many);
    benchmark::RegisterBenchmark((name + "/text_64KiB").c_str(),
                                 [&format, text](benchmark::State& state) { run(state, format, text); });
    benchmark::RegisterBenchmark((name + "/call_64KiB").c_str(), [&format, one_call](benchmark::State& state) {
      run(state, format_of(format), one_call);
    });
    benchmark::RegisterBenchmark((name + "/calls_32").c_str(), [&format, many_calls](benchmark::State& state) {
      run(state, format_of(format), many_calls);
    });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
