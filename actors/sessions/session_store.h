// The files of saved sessions: DIRECTORY/TENANT/NAME.tokens and NAME.kv, both in the format of
// engine/model/sequence_file.h. The first has no contents; the second has K, V and state, for the same tokens or for a
// beginning of them. All directories are the server's alone (0700), files 0600, symbolic links are not followed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/sessions/session_index.h"
#include "config/private_directory.h"
#include "engine/model/sequence_file.h"

namespace troupe::actors {

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
  // All sessions on disk. Deletes what a killed server left: temporary files, and contents without tokens.
  [[nodiscard]] Result<std::vector<Found>> scan() const;

  [[nodiscard]] Result<engine::SequenceFile> open_tokens(const SessionKey& key) const;
  [[nodiscard]] Result<engine::SequenceFile> open_contents(const SessionKey& key) const;
  [[nodiscard]] Status write_tokens(const SessionKey& key, const engine::SequenceRecord& record) const;
  [[nodiscard]] Status write_contents(const SessionKey& key, const engine::SequenceRecord& record,
                                      const engine::SequenceImage& image) const;
  // The contents of one session for another, without a copy: files are replaced, never changed.
  [[nodiscard]] Status link_contents(const SessionKey& from, const SessionKey& to) const;
  void remove_contents(const SessionKey& key) const;
  void remove(const SessionKey& key) const;

  [[nodiscard]] const std::string& path() const { return directory_.path(); }

 private:
  explicit SessionStore(PrivateDirectory directory) : directory_(std::move(directory)) {}
  [[nodiscard]] Result<PrivateDirectory> of(TenantId tenant) const;
  void unlink(const SessionKey& key, SessionPart part) const;

  PrivateDirectory directory_;
};

}  // namespace troupe::actors
