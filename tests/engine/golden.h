// The golden models: tiny ones of every weight type, with the logits they must give.
#pragma once

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "tests/support/shared_data.h"

namespace troupe::test {

// The formats and families that this version supports.
inline const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> names = {
      "llama-F32",    "llama3-rope-F32", "llama-moe-F32", "qwen2-F32",    "qwen3-F32",          "phi3-F32",
      "gemma2-F32",   "gemma3-F32",      "olmoe-F32",     "bitnet-F32",   "bitnet-scale-TQ2_0", "llama-F16",
      "llama-BF16",   "llama-Q8_0",      "llama-Q4_0",    "llama-Q4_1",   "llama-Q5_0",         "llama-Q5_1",
      "llama-IQ4_NL", "llama-IQ4_XS",    "llama-MXFP4",   "llama-Q2_K",   "llama-Q3_K",         "llama-Q4_K",
      "llama-Q4_K_M", "llama-Q5_K",      "llama-Q6_K",    "llama-TQ1_0",  "llama-TQ2_0",        "mamba-F32",
      "mamba2-F32",   "rwkv6-F32",       "rwkv7-F32",     "falcon-h1-F32"};
  return names;
}

inline std::vector<float> read_floats(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  REQUIRE(in.good());
  std::vector<float> values(static_cast<std::size_t>(in.tellg()) / sizeof(float));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

struct Tolerance {
  double max_abs = 0;
  double rms = 0;
};

struct Difference {
  double max_abs = 0;
  double rms = 0;
};

inline Difference difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  Difference result;
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= result.max_abs)) result.max_abs = d;  // NaN counts as a difference
    squares += d * d;
  }
  result.rms = std::sqrt(squares / static_cast<double>(a.size()));
  return result;
}

// One prompt of a golden model, and the expected results.
struct GoldenPrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> greedy;
  std::vector<double> greedy_margin;
  std::vector<float> logits;  // [tokens, vocab]
};

struct Golden {
  std::string model_path;
  bool quantised = false;  // its weights are rounded, and so are activations unless the kernels are the reference's
  // Which `exact` logits there are: of exactly dequantised weights, or with a true GELU. Of the first prompt alone.
  bool has_exact = false;
  nlohmann::json json;
  std::string folder;

  // The better reference: exact where there is one (of the first prompt), else llama.cpp's own.
  GoldenPrompt prompt(const std::string& prefix) const {
    const std::string kind = has_exact ? "exact_" : "";
    GoldenPrompt out;
    out.tokens = json.at(prefix.empty() ? "prompt" : prefix + "prompt").get<std::vector<TokenId>>();
    const std::string best = prefix + (prefix.empty() ? kind : "");
    out.greedy = json.at(best + "greedy").get<std::vector<TokenId>>();
    out.greedy_margin = json.at(best + "greedy_margin").get<std::vector<double>>();
    const std::string logits = best + "logits";
    out.logits = read_floats(folder + json.at(logits).at("file").get<std::string>());
    return out;
  }

  Tolerance tolerance(const std::string& name) const {
    const auto& entry = json.at("tolerance").at(name);
    return {entry.at("max_abs").get<double>(), entry.at("rms").get<double>()};
  }
};

// Empty, with a line in the log, without reference data.
inline std::optional<Golden> load_golden(const std::string& name) {
  const auto path = shared_file("golden/" + name + ".json");
  if (!path) return std::nullopt;
  Golden golden;
  golden.folder = path->substr(0, path->rfind('/') + 1);
  golden.json = nlohmann::json::parse(std::ifstream(*path));
  golden.model_path = golden.folder + golden.json.at("file").get<std::string>();
  golden.has_exact = golden.json.contains("exact_logits");
  golden.quantised = golden.json.at("tolerance").contains("rounded_activations_vs_exact");
  return golden;
}

// The file of a golden model, for tests that expect no logits of it. Where it is not among the reference data, the
// project's own fixture of that family or weight type; nothing, and skipped, where there is none.
inline std::optional<std::string> golden_model(const std::string& name) {
  const std::string fixture = name.ends_with("-F32") ? name.substr(0, name.size() - 4) : name;
  const std::string path = TROUPE_TEST_DATA "/golden/" + fixture + ".gguf";
  const bool is_shared = std::filesystem::exists(shared_folder() / "golden" / (name + ".gguf"));
  if (!is_shared && std::filesystem::exists(path)) return path;
  return shared_file("golden/" + name + ".gguf");
}

}  // namespace troupe::test
