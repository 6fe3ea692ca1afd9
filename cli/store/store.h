// The folder in which troupe keeps models that it has fetched.
//
//   names/NAME.json      a model: its files, sizes, hashes, where it came from (record.h). A model is in the store when
//                        this file is there; it is the last that is made, and the first that goes
//   blobs/sha256-HEX     whole files, by their hash: two names of one file take its place once
//   files/ID/FILE.gguf   symbolic links to blobs, under the files' names: what -m opens
//   partial/KEY.data     what has arrived of a file; KEY.json says which of its bytes (transfer_state.h), KEY.lock is
//                        held by who fetches it
//   partial/in-use       held shared by every pull, and alone by what takes blobs away
//
// Whatever is made has another name until it is whole and on the disk. A file or folder counts only if its owner is
// root, oneself or, of the machine's store, the user troupe, and if nobody else can write to it. Everything is reached
// from the open folders, so that no exchanged folder or link leads elsewhere.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/store/record.h"
#include "config/file_descriptor.h"
#include "config/result.h"

namespace troupe::cli {

inline constexpr const char* kMachineStore = "/var/lib/troupe/models";
inline constexpr std::size_t kMaxStoredModels = 10'000;

struct StorePlace {
  std::string path;
  bool is_shared = false;  // of the machine

  friend bool operator==(const StorePlace&, const StorePlace&) = default;
};

// Where this user's models are: `option` (--store), else $XDG_DATA_HOME/troupe/models, ~/.local/share/troupe/models.
// Error: bad_config: none of these is an absolute path.
[[nodiscard]] Result<StorePlace> own_store(const std::string& option);
// The places where -m looks: --store alone, else the user's and the machine's. Without a home the machine's alone.
[[nodiscard]] std::vector<StorePlace> searched_stores(const std::string& option);

// A file lock that is held while this lives.
class StoreLock {
 public:
  explicit StoreLock(FileDescriptor file) : file_(std::move(file)) {}

 private:
  FileDescriptor file_;
};

class Store {
 public:
  // Error: model_missing if there is none and it is not to be made; permission if others could change it.
  [[nodiscard]] static Result<Store> open(const StorePlace& place, bool makes);

  [[nodiscard]] const std::string& path() const { return place_.path; }
  [[nodiscard]] std::string path_of(const std::string& inside) const { return place_.path + "/" + inside; }
  // For openat(2) and the like: the open folder of "blobs/NAME", and NAME. fd below 0: there is no such folder.
  struct At {
    int fd;
    std::string name;
  };
  [[nodiscard]] At at(const std::string& inside) const;

  struct Listing {
    std::vector<StoredModel> models;    // by name
    std::vector<std::string> problems;  // records that are not used, and why
  };
  [[nodiscard]] Result<Listing> list() const;

  // The path of the model's (first) file, once all of its files are found whole and safe. Error: io, permission.
  [[nodiscard]] Result<std::string> file_of(const StoredModel& model) const;
  // Whether the blob is there, has this size and may be used. Error: permission: it is there, and others can write it.
  [[nodiscard]] Result<bool> has_blob(const std::string& sha256, std::uint64_t bytes) const;

  // Makes the links to the model's blobs, which are there; the model is not listed yet. The path of its first file.
  [[nodiscard]] Result<std::string> link_files(const StoredModel& model) const;
  // Lists the model, in the place of an earlier one of the name. Error: also a model that parse_record() refuses.
  [[nodiscard]] Status publish(const StoredModel& model) const;
  // Takes the name away, also of a record that cannot be read. Its files go with unused(). Error: model_missing.
  [[nodiscard]] Status unlist(const std::string& name) const;

  struct Unused {
    std::vector<std::string> paths;  // inside the store
    std::uint64_t bytes = 0;         // that are free afterwards
    std::vector<std::string> kept;   // that could not be removed, and why
  };
  // What no name needs: blobs, folders of links, unfinished files; `of`: of the files of this model alone. removes:
  // takes it away, for which in_use() must be held alone. Error: also where a record cannot be read, which may need it.
  [[nodiscard]] Result<Unused> unused(bool removes, const StoredModel* of = nullptr) const;

  // Shared by pulls, which may take as long as they like; alone, for those who take blobs away. Nothing if others hold
  // it otherwise.
  [[nodiscard]] Result<std::optional<StoreLock>> in_use(bool alone) const;
  // The right to fetch one file. `waits`: until it is free; else nothing if it is not.
  [[nodiscard]] Result<std::optional<StoreLock>> lock_partial(const std::string& key, bool waits) const;

  // Bytes of all blobs and unfinished files on the disk.
  [[nodiscard]] std::uint64_t used_bytes() const;
  // What this user may still write to the disk.
  [[nodiscard]] Result<std::uint64_t> free_bytes() const;

  // Writes a file inside the store that is whole whenever it is there: under another name, synced, renamed.
  [[nodiscard]] Status write_whole(const std::string& inside, const std::string& text) const;
  // A file that this user alone has written. Error: also permission: it is another's, or a symbolic link.
  [[nodiscard]] Result<std::string> read_own(const std::string& inside, std::size_t max_bytes) const;
  [[nodiscard]] Status sync_folder(const std::string& folder) const;
  // Whether a file or folder with this owner and mode is as it should be; `what` begins the message.
  [[nodiscard]] Status check_owner(const struct stat& info, const std::string& what) const;

 private:
  [[nodiscard]] Result<std::string> read(const std::string& inside, std::size_t max_bytes, bool own) const;
  [[nodiscard]] Status remove(const std::string& inside, bool is_folder) const;
  // The folder of a model's links, safe to use.
  [[nodiscard]] Result<FileDescriptor> open_links(const std::string& folder) const;
  explicit Store(StorePlace place) : place_(std::move(place)) {}
  [[nodiscard]] Status open_folders(int store, bool makes);
  [[nodiscard]] Result<std::vector<std::string>> names_in(const std::string& folder) const;
  [[nodiscard]] Result<std::optional<StoreLock>> lock(const std::string& inside, int operation) const;

  static constexpr const char* kFolders[] = {"names", "blobs", "files", "partial"};

  StorePlace place_;
  std::vector<FileDescriptor> folders_;  // as kFolders
};

// The name of a blob's file.
[[nodiscard]] std::string blob_name(const std::string& sha256);

}  // namespace troupe::cli
