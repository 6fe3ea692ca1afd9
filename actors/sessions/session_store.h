// The files of saved sessions: DIRECTORY/TENANT/NAME.tokens and NAME.kv, both in the format of
// engine/model/sequence_file.h. The first has no contents; the second has K, V and state, for the same tokens or for a
// beginning of them. All directories are the server's alone (0700), files 0600, symbolic links are not followed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/sessions/session_index.h"
#include "config/private_directory.h"
#include "engine/model/sequence_file.h"

namespace troupe::actors {

// The name of the file, of the tenant's folder, and the way back; none: a name that is not one of these.
[[nodiscard]] std::string session_file_name(const std::string& session, SessionPart part);
[[nodiscard]] std::string session_folder_name(TenantId tenant);
[[nodiscard]] std::optional<TenantId> tenant_of_folder(const std::string& folder);
struct SessionFileName {
  std::string session;
  SessionPart part = SessionPart::tokens;
  bool is_temporary = false;  // of a write that has not ended, ".NAME.tokens.tmp"
};
[[nodiscard]] std::optional<SessionFileName> parse_session_file(const std::string& file);

// What was found in the place of something else. Only that session, or tenant, is without.
struct SessionProblem {
  TenantId tenant{};
  std::string session;  // empty: the tenant's folder cannot be used
  SessionPart part = SessionPart::tokens;
  std::string message;  // with the path
  std::uint64_t last_used = 0;
};

// Holds no lock and no list: two calls for the same file at a time exclude one another by what calls them. Any thread.
class SessionStore {
 public:
  // Errors: as PrivateDirectory::open(); busy if another server uses the directory.
  static Result<SessionStore> open(const std::string& directory);

  struct Found {
    SessionKey key;
    std::uint64_t token_bytes = 0;
    std::uint64_t content_bytes = 0;
    std::uint64_t last_used = 0;  // seconds since 1970
  };
  // All sessions on disk; problems, if it is given, gets what is in the way of others. Deletes what a killed server
  // left: temporary files, and contents of a fork without tokens. Renames other contents without tokens to
  // NAME.kv.lost, a problem that leaves the name free. Error: the directory itself cannot be read.
  [[nodiscard]] Result<std::vector<Found>> scan(std::vector<SessionProblem>* problems = nullptr) const;
  // The sessions of one tenant. Error: its folder cannot be used.
  [[nodiscard]] Result<std::vector<Found>> scan_tenant(TenantId tenant, std::vector<SessionProblem>& problems) const;

  [[nodiscard]] Result<engine::SequenceFile> open_tokens(const SessionKey& key) const;
  [[nodiscard]] Result<engine::SequenceFile> open_contents(const SessionKey& key) const;
  // publish: as of engine::write_sequence().
  [[nodiscard]] Status write_tokens(const SessionKey& key, const engine::SequenceRecord& record,
                                    const engine::PublishSequence& publish = {}) const;
  [[nodiscard]] Status write_contents(const SessionKey& key, const engine::SequenceRecord& record,
                                      const engine::SequenceImage& image,
                                      const engine::PublishSequence& publish = {}) const;
  // The contents of one session for another, without a copy: files are replaced, never changed.
  [[nodiscard]] Status link_contents(const SessionKey& from, const SessionKey& to) const;
  // Takes the name away, if there is one. While what is returned is open, the file takes room: to close it may last,
  // for a large one. Error: the name is still there.
  Result<FileDescriptor> unlink(const SessionKey& key, SessionPart part) const;
  // Whether something has the name of this part, as far as can be seen.
  [[nodiscard]] bool has(const SessionKey& key, SessionPart part) const;
  void remove_contents(const SessionKey& key) const;
  void remove(const SessionKey& key) const;
  // What was renamed or deleted among the tenant's files is on disk.
  [[nodiscard]] Status sync(TenantId tenant) const;

  [[nodiscard]] const std::string& path() const { return directory_.path(); }

 private:
  explicit SessionStore(PrivateDirectory directory) : directory_(std::move(directory)) {}
  [[nodiscard]] Result<PrivateDirectory> of(TenantId tenant) const;

  PrivateDirectory directory_;
};

}  // namespace troupe::actors
