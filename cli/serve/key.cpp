// troupe key: the keys of clients that come over TCP.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/options/values.h"
#include "config/printable.h"
#include "ipc/keys/key_file.h"
#include "ipc/keys/key_text.h"
#include "ipc/sockets/listening_socket.h"
#include "ipc/tenant_rules.h"

namespace troupe::cli {
namespace {

constexpr const char* kReadAgain = "a running server reads the keys with SIGHUP (systemctl reload troupe)";

std::string time_text(std::int64_t seconds) { return local_time(seconds, "%Y-%m-%d %H:%M"); }

std::int64_t now() { return static_cast<std::int64_t>(std::time(nullptr)); }

nlohmann::ordered_json key_json(const ipc::KeyRow& row) {
  nlohmann::ordered_json out = {{"name", row.name}, {"id", row.id}, {"tenant", row.label()}, {"created", row.created}};
  out["expires"] = row.expires ? nlohmann::ordered_json(*row.expires) : nlohmann::ordered_json(nullptr);
  out["expired"] = row.has_expired(now());
  auto quota = nlohmann::ordered_json::object();
  for (const auto& [limit, value] : row.limits) {
    if (const auto whole = config::parse_integer(value))
      quota[limit] = *whole;
    else
      quota[limit] = config::parse_number(value).value_or(0);
  }
  out["quota"] = std::move(quota);
  return out;
}

std::string expiry_text(const ipc::KeyRow& row) {
  if (!row.expires) return "never";
  return time_text(*row.expires) + (row.has_expired(now()) ? " (expired)" : "");
}

std::string list_text(const std::vector<ipc::KeyRow>& rows) {
  if (rows.empty()) return "there are no keys; troupe key add NAME makes one\n";
  std::size_t name = 4, tenant = 6;
  for (const ipc::KeyRow& row : rows) {
    name = std::max(name, row.name.size());
    tenant = std::max(tenant, row.label().size());
  }
  const auto line = [&](const std::string& a, const std::string& b, const std::string& c, const std::string& d) {
    return fmt::format("{:<{}}  {:<{}}  {:<16}  {}\n", a, name, b, tenant, c, d);
  };
  std::string text = line("NAME", "TENANT", "CREATED", "EXPIRES");
  for (const ipc::KeyRow& row : rows) {
    text += line(row.name, row.label(), time_text(row.created), expiry_text(row));
    for (const auto& [limit, value] : row.limits) text += fmt::format("  {} = {}\n", limit, value);
  }
  return text;
}

// Of the file of keys, so the server's user; of one that is still to be made, ours.
std::uint32_t owner_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_uid : ::geteuid();
}

// Whether the server that reads the same configuration file and file of keys takes keys of the tenant.
Status check_tenant(const std::string& label, const std::string& path, const config::Given& given) {
  if (const auto uid = ipc::uid_of_label(label)) {
    if (ipc::is_owner(*uid) || *uid == owner_of(path))
      return Error{ErrorCode::invalid_argument,
                   fmt::format("--tenant: uid {} is the server's own user or root, and no key is theirs; without "
                               "--tenant the key is a tenant of its own",
                               *uid)};
    if (std::to_string(*uid) != label)
      return Error{ErrorCode::invalid_argument, fmt::format("--tenant: write uid {} as {}", label, *uid)};
  }
  const auto named = std::ranges::find(given.tenants, label, &config::TenantRule::name);
  if (named != given.tenants.end() || ipc::uid_of_label(label)) return Ok{};
  std::vector<std::string> names;
  for (const config::TenantRule& rule : given.tenants)
    if (!rule.name.empty()) names.push_back(rule.name);
  const std::string known = given.file.empty() ? "no configuration file was read (--config)"
                            : names.empty()    ? fmt::format("{} names none", given.file)
                                               : fmt::format("{} names {}", given.file, fmt::join(names, ", "));
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("--tenant: no [[tenant]] rule is named '{}': {}; without --tenant the key is a tenant of its "
                  "own",
                  Printable(label).text(), known)};
}

Result<ipc::KeyLimits> limits_of(const config::KeyCommandOptions& options, const config::Given& given) {
  ipc::KeyLimits limits;
  for (const std::string& list : options.quota)
    for (const std::string& each : config::split(list, ',')) {
      const std::size_t equals = each.find('=');
      if (equals == std::string::npos)
        return config::bad_value(given, "quota", fmt::format("'{}' is no LIMIT=N", Printable(each).text()));
      limits.emplace_back(each.substr(0, equals), each.substr(equals + 1));
    }
  if (const auto rule = ipc::rule_of(limits); !rule) return config::bad_value(given, "quota", rule.error().message);
  if (!limits.empty() && !options.key_tenant.empty())
    return config::bad_value(given, "quota",
                             fmt::format("the limits of tenant {} are in its rule; --quota is for a key without "
                                         "--tenant",
                                         Printable(options.key_tenant).text()));
  return limits;
}

Result<ipc::KeyRow> new_row(const std::string& name, const std::string& text, const std::string& path,
                            const config::KeyCommandOptions& options, const config::Given& given) {
  if (!ipc::is_key_name(name))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("'{}' is no name of a key: it must begin with a letter and have at most {} letters, "
                             "digits, '.', '_', '-'",
                             Printable(name).text(), config::kMaxTenantNameBytes)};
  if (!options.key_tenant.empty())
    if (const Status known = check_tenant(options.key_tenant, path, given); !known) return known.error();
  auto limits = limits_of(options, given);
  if (!limits) return limits.error();
  ipc::KeyRow row{.name = name, .tenant = options.key_tenant, .created = now(), .limits = std::move(*limits)};
  const auto lifetime = std::chrono::duration_cast<std::chrono::seconds>(options.expires);
  if (options.expires.count() > 0) row.expires = row.created + std::max<std::int64_t>(lifetime.count(), 1);
  const auto parts = ipc::split_key(text);
  row.id = parts->id;
  ipc::fill_random(row.salt);
  const auto hash = ipc::scrypt(parts->secret, row.salt);
  if (!hash) return hash.error();
  row.hash = *hash;
  return row;
}

Result<int> add(const std::string& name, const std::string& path, const config::KeyCommandOptions& options,
                const config::Given& given) {
  std::string text = ipc::draw_key();
  auto row = new_row(name, text, path, options, given);
  if (!row) return row.error();
  auto file = ipc::KeyFile::open(path);
  if (!file) return file.error();
  std::vector<ipc::KeyRow> rows = file->rows();
  if (std::ranges::find(rows, name, &ipc::KeyRow::name) != rows.end())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} has a key {}; revoke it first, or choose another name", path, name)};
  if (rows.size() >= ipc::kMaxKeys)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} has {} keys, as many as there may be; revoke some", path, rows.size())};
  rows.push_back(*row);
  if (const Status written = file->replace(std::move(rows)); !written) return written.error();
  if (options.json) {
    nlohmann::ordered_json out = key_json(*row);
    out["key"] = text;
    write_json(out, std::cout);
  } else {
    std::cout << text << '\n';
    complain("troupe key", fmt::format("this is the only time that it is shown; {}", kReadAgain));
  }
  ipc::wipe(text);
  return kExitOk;
}

Result<int> revoke(const std::string& name, const std::string& path, bool json) {
  if (const auto there = ipc::read_keys(path); !there && there.error().code == ErrorCode::bad_config)
    return there.error();  // without making a file
  auto file = ipc::KeyFile::open(path);
  if (!file) return file.error();
  std::vector<ipc::KeyRow> rows = file->rows();
  if (std::erase_if(rows, [&](const ipc::KeyRow& row) { return row.name == name; }) == 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} has no key '{}'; troupe key list shows them", path, Printable(name).text())};
  if (const Status written = file->replace(std::move(rows)); !written) return written.error();
  if (json)
    write_json({{"revoked", name}}, std::cout);
  else
    complain("troupe key", fmt::format("{} is revoked; {}", name, kReadAgain));
  return kExitOk;
}

Result<int> list(const std::string& path, bool json) {
  const auto rows = ipc::read_keys(path);
  if (!rows) return rows.error();
  if (!json) {
    std::cout << list_text(*rows);
    return kExitOk;
  }
  auto out = nlohmann::ordered_json::array();
  for (const ipc::KeyRow& row : *rows) out.push_back(key_json(row));
  write_json(out, std::cout);
  return kExitOk;
}

Error wrong_use(const std::string& what) {
  return {ErrorCode::invalid_argument, what + "; it is one of: add NAME, list, revoke NAME"};
}

}  // namespace

Result<int> key(const config::KeyCommandOptions& options, const config::Given& given) {
  const std::vector<std::string>& words = given.arguments;
  if (words.empty()) return wrong_use("what to do is missing");
  const std::string& verb = words.front();
  if (verb != "add" && verb != "list" && verb != "revoke")
    return wrong_use(fmt::format("there is no '{}'", Printable(verb).text()));
  const std::size_t num_names = verb == "list" ? 0 : 1;
  if (words.size() != 1 + num_names)
    return wrong_use(fmt::format("{} takes {}, not {}", verb, num_names == 1 ? "a name" : "no name", words.size() - 1));
  if (verb != "add" && (!options.key_tenant.empty() || options.expires.count() > 0 || !options.quota.empty()))
    return wrong_use("--tenant, --expires and --quota belong to add");
  const auto path = ipc::keys_path(options.keys_file);
  if (!path) return path.error();
  if (verb == "add") return add(words[1], *path, options, given);
  if (verb == "revoke") return revoke(words[1], *path, options.json);
  return list(*path, options.json);
}

}  // namespace troupe::cli
