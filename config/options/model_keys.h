// What is said of a model beside its file: once for [[model]] tables, `troupe model load`, frames, the client library
// and what a server loads, whose structs have members of these names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options/bytes.h"
#include "config/sampling/model_defaults.h"

namespace troupe::config {

inline constexpr std::size_t kMaxModelAliases = 16;  // of one model

// The members; a key is a member with - for _.
#define TROUPE_MODEL_KEYS(X) \
  X(path)                    \
  X(name)                    \
  X(aliases)                 \
  X(ctx_size)                \
  X(kv_type)                 \
  X(kv_blocks)               \
  X(predict)                 \
  X(chat_template)           \
  X(tool_format)             \
  X(draft)                   \
  X(memory)                  \
  X(weight)                  \
  X(pinned)                  \
  X(defaults)                \
  X(replace)                 \
  X(load)                    \
  X(keep_alive)

// Loads beside the other model, which serves meanwhile; or once that one's memory is back.
inline constexpr std::string_view kReplaceWays[] = {"beside", "unload-first"};
// When a model is loaded: as the server starts, or once a request asks for it. The first is the one of a model that
// says nothing.
inline constexpr std::string_view kLoadTimes[] = {"start", "on-request"};

struct ModelKeys {
  std::string path{};
  std::string name{};                       // what clients call it; empty: the name in its file
  std::vector<std::string> aliases{};       // other names that clients may call it by
  std::optional<std::int64_t> ctx_size{};   // what is absent is as the option of that name says
  std::string kv_type{};                    // likewise if empty
  std::optional<std::int64_t> kv_blocks{};  // likewise
  std::optional<std::int64_t> predict{};    // likewise; -1: as many tokens as fit
  std::string chat_template{};              // likewise: a template's name, or its file
  std::string tool_format{};                // likewise
  std::string draft{};                      // a draft model; empty: none
  Bytes memory{};                           // of --memory, for this model; 0: what it needs and a share of the rest
  double weight = 1;                        // of its computing, in the shares of its tenants
  bool pinned = false;                      // never unloaded to make room for another
  ModelDefaults defaults{};                 // of its answers
  std::string replace{};                    // how it takes the place of a model of its name: kReplaceWays; empty: not
  std::string load{};                       // kLoadTimes; empty: the first
  std::string keep_alive{};                 // of one on request, parse_keep_alive(); empty: as the option of that name
  friend bool operator==(const ModelKeys&, const ModelKeys&) = default;
};

// "ctx-size", "kv-type", ..., "defaults.temp", ...: all keys but path and name.
[[nodiscard]] std::vector<std::string> model_keys();

[[nodiscard]] inline bool is_on_request(const ModelKeys& model) { return model.load == kLoadTimes[1]; }
// Seconds without a request, after which a model on request is put out: a duration ("10m", "0" is at once) or "forever"
// (infinite). Nothing: it is neither.
[[nodiscard]] std::optional<double> parse_keep_alive(std::string_view text);

// What is wrong with a model's values: the key, and why.
struct ModelProblem {
  std::string_view key;
  std::string why;
};
// Nothing if none is. Whether there are such files, templates and formats is not known here.
[[nodiscard]] std::optional<ModelProblem> problem_of(const ModelKeys& model);

// Calls f(member) for each key.
template <class Keys, class F>
void for_each_model_key(const Keys& keys, const F& f) {
#define TROUPE_CALL(member) f(keys.member);
  TROUPE_MODEL_KEYS(TROUPE_CALL)
#undef TROUPE_CALL
}
// Calls f(member of `from`, member of `to`) for each key.
template <class From, class To, class F>
void for_each_model_key(const From& from, To& to, const F& f) {
#define TROUPE_CALL(member) f(from.member, to.member);
  TROUPE_MODEL_KEYS(TROUPE_CALL)
#undef TROUPE_CALL
}

}  // namespace troupe::config
