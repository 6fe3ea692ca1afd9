// What clients ask about their named conversations (actors/sessions/), and what they are told. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cache/prefix_hash.h"
#include "scheduler/shares/admission.h"
#include "scheduler/shares/tenant.h"

namespace troupe::actors {

inline constexpr std::size_t kMaxSessionNameBytes = 64;

struct SessionsPlace {
  std::string sessions_directory;   // empty: none are kept, and requests that name one are refused
  std::string no_sessions_because;  // why it is empty, where sessions were wanted
};

struct SessionQuestion {
  // save: waits until K and V of the last answer are written. remove: forgets the session.
  enum class Kind : std::uint8_t { list, save, fork, remove, inspect };
  Kind kind = Kind::list;
  scheduler::Tenant tenant;
  std::string name;  // not for list
  std::string to;    // fork: the new session
};

// An anchor of a session, and whether a request of its tenant would find the prefix in the cache.
struct SessionAnchor {
  cache::Anchor anchor;
  bool cached = false;
};

struct SessionInfo {
  std::string name;
  std::uint64_t created = 0;    // seconds since 1970
  std::uint64_t last_used = 0;  // the last end of an answer, as `created`
  std::uint32_t num_tokens = 0;
  std::uint32_t num_computed = 0;  // tokens whose K and V (or state) are on disk
  std::uint32_t num_blocks = 0;    // of these
  std::uint32_t num_answers = 0;
  std::uint64_t bytes = 0;  // on disk
  std::uint32_t file_version = 0;
  std::string numerics_id;
  bool in_use = false;
  std::string problem;                 // set: its file cannot be used, and why
  std::vector<SessionAnchor> anchors;  // inspect alone
  bool cache_known = false;            // inspect: `cached` of the anchors was looked up
};

// save, fork and inspect: one entry. remove: none.
using SessionAnswer = std::variant<std::vector<SessionInfo>, scheduler::Refusal>;

}  // namespace troupe::actors
