// troupe session: the conversations that the server keeps for its caller.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "actors/sessions/session_repair.h"
#include "cli/client/client_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "config/state_directory.h"
#include "ipc/client/client.h"

namespace troupe::cli {
namespace {

std::string time_of(std::uint64_t seconds) { return local_time(seconds, "%Y-%m-%d %H:%M:%S"); }

// How many of the tokens the server's cache has; nothing if it was not looked up.
std::uint32_t num_cached(const client::SessionInfo& session) {
  std::uint32_t cached = 0;
  for (const client::SessionAnchor& anchor : session.anchors)
    if (anchor.cached) cached = std::max(cached, anchor.position);
  return cached;
}

nlohmann::ordered_json session_json(const client::SessionInfo& session, bool inspected, bool with_anchors) {
  nlohmann::ordered_json out = {{"name", session.name},
                                {"tokens", session.tokens},
                                {"computed", session.computed},
                                {"blocks", session.blocks},
                                {"answers", session.answers},
                                {"bytes", session.bytes},
                                {"created", session.created},
                                {"last_used", session.last_used},
                                {"in_use", session.in_use},
                                {"numerics_id", session.numerics_id},
                                {"file_version", session.file_version}};
  if (!session.problem.empty()) out["problem"] = session.problem;
  if (inspected && session.cache_known) out["cached"] = num_cached(session);
  if (!inspected || !with_anchors) return out;
  auto anchors = nlohmann::ordered_json::array();
  for (const client::SessionAnchor& anchor : session.anchors) {
    nlohmann::ordered_json each = {{"position", anchor.position}, {"hash", fmt::format("{:016x}", anchor.hash)}};
    if (session.cache_known) each["cached"] = anchor.cached;
    anchors.push_back(std::move(each));
  }
  out["anchors"] = std::move(anchors);
  return out;
}

std::string session_text(const client::SessionInfo& session, bool inspected, bool with_anchors) {
  std::vector<std::pair<std::string, std::string>> lines = {
      {"name", session.name},
      {"tokens", fmt::format("{} in {} answers{}", session.tokens, session.answers, session.in_use ? ", in use" : "")},
      {"saved", session.computed == 0
                    ? "the tokens; K and V are computed again"
                    : fmt::format("K and V of {} tokens, {} blocks", session.computed, session.blocks)},
      {"on disk", fmt::format("{}, version {} of the format", human_bytes(session.bytes), session.file_version)},
      {"begun", time_of(session.created)},
      {"last used", time_of(session.last_used)},
      {"numerics", session.numerics_id}};
  if (!session.problem.empty()) lines.emplace_back("problem", session.problem);
  if (inspected)
    lines.emplace_back("in the cache",
                       session.cache_known ? fmt::format("{} tokens", num_cached(session)) : "not known");
  if (inspected && with_anchors)
    for (const client::SessionAnchor& anchor : session.anchors)
      lines.emplace_back(fmt::format("anchor {}", anchor.position),
                         fmt::format("{:016x}{}", anchor.hash, anchor.cached ? "  cached" : ""));
  return aligned(lines);
}

std::string list_text(const std::vector<client::SessionInfo>& sessions) {
  if (sessions.empty()) return "there are no sessions; troupe run --session NAME begins one\n";
  std::size_t width = 4;
  for (const client::SessionInfo& session : sessions) width = std::max(width, session.name.size());
  std::string text =
      fmt::format("{:<{}}  {:>8}  {:>8}  {:>10}  {:<19}\n", "NAME", width, "TOKENS", "SAVED", "ON DISK", "LAST USED");
  for (const client::SessionInfo& session : sessions)
    text += fmt::format("{:<{}}  {:>8}  {:>8}  {:>10}  {}{}{}\n", Printable(session.name).text(), width, session.tokens,
                        session.computed, human_bytes(session.bytes), time_of(session.last_used),
                        session.in_use ? "  in use" : "",
                        session.problem.empty() ? "" : "  " + Printable(session.problem, kMaxMessageBytes).text());
  return text;
}

Error wrong_use(const std::string& what) {
  return {ErrorCode::invalid_argument,
          what + "; it is one of: list, save NAME, fork NAME NEW, delete NAME, inspect NAME, repair"};
}

Result<int> list(client::Client& client, bool json) {
  const auto sessions = client.sessions();
  if (!sessions) return sessions.error();
  if (!json) {
    std::cout << list_text(*sessions);
    return kExitOk;
  }
  auto out = nlohmann::ordered_json::array();
  for (const client::SessionInfo& each : *sessions) out.push_back(session_json(each, false, false));
  write_json(out, std::cout);
  return kExitOk;
}

std::string repair_text(const std::string& directory, const actors::SessionRepair& repair) {
  std::string text;
  for (const actors::SessionFinding& each : repair.findings)
    text += fmt::format("{}: {}{}{}\n", Printable(each.path, kMaxMessageBytes).text(),
                        Printable(each.what, kMaxMessageBytes).text(), each.remedy.empty() ? "" : ": ",
                        Printable(each.remedy, kMaxMessageBytes).text());
  return text + fmt::format("{}: {} sessions of {} users can be continued, {} things were wrong\n", directory,
                            repair.num_sessions, repair.num_tenants, repair.findings.size());
}

nlohmann::ordered_json repair_json(const actors::SessionRepair& repair, bool dry_run) {
  auto findings = nlohmann::ordered_json::array();
  for (const actors::SessionFinding& each : repair.findings)
    findings.push_back(
        {{"path", each.path}, {"problem", each.what}, {"remedy", each.remedy}, {"mended", each.is_mended && !dry_run}});
  return {{"users", repair.num_tenants},
          {"sessions", repair.num_sessions},
          {"dry_run", dry_run},
          {"findings", std::move(findings)}};
}

Result<int> repair(const config::SessionOptions& options) {
  const auto directory = chosen_state_path(options.sessions_dir, "sessions-dir", "sessions");
  if (!directory) return directory.error();
  if (directory->empty())
    return Error{ErrorCode::invalid_argument, "there is no directory of sessions here; name it with --sessions-dir"};
  const auto repaired = actors::repair_sessions(*directory, options.dry_run);
  if (!repaired) return repaired.error();
  if (options.json)
    write_json(repair_json(*repaired, options.dry_run), std::cout);
  else
    std::cout << repair_text(*directory, *repaired);
  const bool is_well = options.dry_run ? repaired->findings.empty() : repaired->is_well();
  return is_well ? kExitOk : kExitFailure;
}

}  // namespace

Result<int> session(const config::SessionOptions& options, const config::Given& given) {
  const std::vector<std::string>& words = given.arguments;
  if (words.empty()) return wrong_use("what to do is missing");
  const std::string& verb = words.front();
  constexpr std::pair<std::string_view, std::size_t> kVerbs[] = {{"list", 0},   {"save", 1},    {"fork", 2},
                                                                 {"delete", 1}, {"inspect", 1}, {"repair", 0}};
  const auto* const known = std::ranges::find(kVerbs, verb, &std::pair<std::string_view, std::size_t>::first);
  if (known == std::end(kVerbs)) return wrong_use(fmt::format("there is no '{}'", Printable(verb).text()));
  if (words.size() != 1 + known->second)
    return wrong_use(fmt::format("{} takes {} names, not {}", verb, known->second, words.size() - 1));
  if (options.anchors && verb != "inspect") return wrong_use("--anchors belongs to inspect");
  if (options.dry_run && verb != "repair") return wrong_use("--dry-run belongs to repair");
  if (verb == "repair") return repair(options);

  const auto client = connect(options, "troupe session");
  if (!client) return client.error();
  if (verb == "list") return list(**client, options.json);
  if (verb == "delete") {
    const Status deleted = (*client)->delete_session(words[1]);
    if (!deleted) return deleted.error();
    if (options.json) write_json({{"deleted", words[1]}}, std::cout);
    return kExitOk;
  }
  const bool inspects = verb == "inspect";
  const auto told = inspects         ? (*client)->inspect_session(words[1])
                    : verb == "save" ? (*client)->save_session(words[1])
                                     : (*client)->fork_session(words[1], words[2]);
  if (!told) return told.error();
  if (options.json)
    write_json(session_json(*told, inspects, options.anchors), std::cout);
  else
    std::cout << session_text(*told, inspects, options.anchors);
  return kExitOk;
}

}  // namespace troupe::cli
