#include "cli/pull/transfer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "cli/pull/quant.h"
#include "cli/store/transfer_state.h"
#include "config/printable.h"
#include "config/system_error.h"
#include "ipc/keys/sha256.h"

namespace troupe::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLeastPiece = 256 << 10, kMostPiece = 64 << 20, kFirstPiece = 512 << 10;
constexpr std::uint64_t kHashAtOnce = 16 << 20;      // between two looks at the network
constexpr std::uint64_t kEnoughProgress = 64 << 10;  // after which failures are counted anew
constexpr std::chrono::seconds kSaveEvery{2};
constexpr int kMaxRestarts = 3;
constexpr std::uint64_t kSpareBytes = 16 << 20;  // left free on the disk
constexpr std::array<char, 4> kMagic{'G', 'G', 'U', 'F'};

std::string sha256_of(const std::string& text) {
  ipc::Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hex();
}

// Two sources of one file share what has come.
std::string key_of(const WantedFile& wanted) {
  return wanted.sha256.empty() ? "url-" + sha256_of(wanted.url.text()) : blob_name(wanted.sha256);
}

// The server's mark of this version, byte for byte; empty: it gives none. A weak one (W/) and a date say less.
std::string mark_of(const ResponseHead& head) {
  constexpr std::size_t kMaxMarkBytes = 512;
  const std::string_view mark = field_of(head.fields, "etag");
  return mark.size() > kMaxMarkBytes || mark.starts_with("W/") ? std::string() : std::string(mark);
}

Result<TransferState> read_state(const Store& store, const std::string& key) {
  const auto text = store.read_own(fmt::format("partial/{}.json", key), kMaxStateBytes);
  return text ? parse_state(*text) : Result<TransferState>(text.error());
}

class Transfer {
 public:
  Transfer(const Store& store, Network& network, const WantedFile& wanted, const TransferOptions& options,
           StoredFile known)
      : known_(std::move(known)),
        store_(store),
        network_(network),
        wanted_(wanted),
        options_(options),
        key_(key_of(wanted)),
        what_(Printable(wanted.name, 128).text()) {
    state_.url = wanted.url.text();
    state_.sha256 = wanted.sha256;
  }

  Status open();
  // Until so many bytes from the first on are there; 0: all.
  Status run(std::uint64_t front);
  Result<StoredFile> finish();
  bool is_known() const { return is_known_; }
  void forget_data();
  std::string data_path() const { return store_.path_of(data_name()); }
  const TransferState& state() const { return state_; }

 private:
  // One request for some of the bytes.
  struct Part final : Receiver {
    Part(Transfer& transfer, ByteRange range) : owner(transfer), wanted(range), at(range.begin) {}
    Status head(const ResponseHead& head) override { return owner.take_head(*this, head); }
    Status body(std::span<const std::byte> bytes) override { return owner.take_body(*this, bytes); }
    Transfer& owner;
    ByteRange wanted;
    std::uint64_t at;        // of the next byte
    bool is_ranged = false;  // it was asked for by its range
    int number = 0;
  };

  std::string data_name() const { return fmt::format("partial/{}.data", key_); }
  std::string state_name() const { return fmt::format("partial/{}.json", key_); }
  Status take_head(Part& part, const ResponseHead& head);
  Status take_ranged_head(Part& part, const ResponseHead& head);
  Status take_body(Part& part, std::span<const std::byte> bytes);
  Status take_size(std::uint64_t size);
  Status check_room(std::uint64_t size) const;
  bool is_changed(const ResponseHead& head, std::uint64_t size) const;
  Status begin_anew(const std::string& why);
  void begin_parts(std::uint64_t front);
  Status take_end(const Network::Ended& ended);
  Status hash_some(std::uint64_t most);
  Status check_magic();
  Status save();
  Status forget_state();
  std::uint64_t piece_bytes() const;
  Error contradiction(const std::string& what) const {
    return {ErrorCode::protocol, fmt::format("{}: {} {}", Printable(wanted_.url.origin(), 256).text(), what_, what)};
  }

  const StoredFile known_;  // what the store has from this address; bytes 0: nothing
  const Store& store_;
  Network& network_;
  const WantedFile& wanted_;
  const TransferOptions& options_;
  const std::string key_;
  const std::string what_;
  FileDescriptor data_{-1};
  TransferState state_;
  std::vector<std::unique_ptr<Part>> parts_;
  bool opened_ = false;       // the server has said of what version and size the file is
  bool takes_ranges_ = true;  // else it sends the whole file to every request
  bool is_known_ = false;     // it is the one that the store has
  bool is_stale_ = false;     // a part is of another version
  bool got_part_ = false;     // in this run
  bool is_odd_ = false;       // the request that ends now failed in a way that may pass
  bool is_forgotten_ = false;
  std::unique_ptr<ipc::Sha256> hash_ = std::make_unique<ipc::Sha256>();
  std::uint64_t hashed_ = 0;
  int failures_ = 0, restarts_ = 0;
  std::uint64_t done_at_failure_ = 0, done_at_save_ = 0;
  Clock::time_point not_before_{}, saved_ = Clock::now();
};

Status Transfer::open() {
  data_ = FileDescriptor(::openat(store_.at(data_name()).fd, store_.at(data_name()).name.c_str(),
                                  O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  struct stat info {};
  if (data_.get() < 0 || ::fstat(data_.get(), &info) != 0)
    return system_error(data_path() + ": cannot be written", errno);
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0 || info.st_nlink != 1)
    return Error{ErrorCode::permission, data_path() + ": is no file of yours alone; `troupe prune` removes it"};
  if (::fchmod(data_.get(), 0644) != 0) return system_error(data_path() + ": cannot be written", errno);
  auto state = read_state(store_, key_);
  // Without a hash or a mark, parts of two versions could not be told apart.
  const bool is_usable = state && (!wanted_.sha256.empty() || !state->etag.empty()) &&
                         state->sha256 == wanted_.sha256 && static_cast<std::uint64_t>(info.st_size) == state->size &&
                         (wanted_.bytes == 0 || wanted_.bytes == state->size) &&
                         (!wanted_.sha256.empty() || state->url == state_.url);
  if (is_usable) {
    state->url = state_.url;
    state_ = *std::move(state);
    done_at_save_ = state_.done.total();
    return Ok{};
  }
  if (::ftruncate(data_.get(), 0) != 0) return system_error(data_path() + ": cannot be written", errno);
  return Ok{};
}

std::uint64_t Transfer::piece_bytes() const {
  if (!takes_ranges_) return kMaxModelFileBytes;
  if (state_.size == 0) return kFirstPiece;
  return std::clamp(state_.size / static_cast<std::uint64_t>(4 * options_.connections), kLeastPiece, kMostPiece);
}

void Transfer::begin_parts(std::uint64_t front) {
  if (Clock::now() < not_before_ || is_stale_) return;
  const std::size_t most = opened_ && takes_ranges_ ? static_cast<std::size_t>(options_.connections) : 1;
  while (parts_.size() < most) {
    ByteRanges claimed = state_.done;
    for (const auto& part : parts_) claimed.add(part->wanted);
    const std::uint64_t known = state_.size != 0 ? state_.size : wanted_.bytes;
    if (!takes_ranges_) claimed = {};  // it comes whole, from the beginning
    const std::uint64_t size = known == 0 ? kFirstPiece : front == 0 ? known : std::min(known, front);
    const auto gap = claimed.first_gap(size, piece_bytes());
    if (!gap) return;
    auto part = std::make_unique<Part>(*this, *gap);
    Request request{.url = wanted_.url};
    part->is_ranged = takes_ranges_;
    if (part->is_ranged) request.range = *gap;
    part->number = network_.begin(request, *part);
    parts_.push_back(std::move(part));
  }
}

Status Transfer::check_room(std::uint64_t size) const {
  struct stat info {};
  const std::uint64_t has =
      ::fstat(data_.get(), &info) == 0 ? std::min(size, static_cast<std::uint64_t>(info.st_blocks) * 512) : 0;
  const std::uint64_t needs = size - has;
  const auto free = store_.free_bytes();
  if (!free) return free.error();
  if (needs + kSpareBytes > *free)
    return Error{ErrorCode::io, fmt::format("{} needs {} more, and {} has {} free; remove models (`troupe rm`, `troupe "
                                            "prune`), or name another folder (--store)",
                                            what_, size_text(needs), store_.path(), size_text(*free))};
  if (options_.max_store_bytes == 0) return Ok{};
  const std::uint64_t used = store_.used_bytes();
  if (used + needs > options_.max_store_bytes)
    return Error{ErrorCode::io,
                 fmt::format("{} needs {} more, and --store-quota {} leaves {}; remove models (`troupe rm`, "
                             "`troupe prune`)",
                             what_, size_text(needs), size_text(options_.max_store_bytes),
                             size_text(options_.max_store_bytes - std::min(used, options_.max_store_bytes)))};
  return Ok{};
}

// Of a file whose size the server says for the first time.
Status Transfer::take_size(std::uint64_t size) {
  if (size == 0) return contradiction("is empty");
  if (size > kMaxModelFileBytes)
    return contradiction(fmt::format("has {} bytes, it says; at most {} are fetched", size, kMaxModelFileBytes));
  if (wanted_.bytes != 0 && size != wanted_.bytes)
    return contradiction(fmt::format("has {} bytes, and {} were promised", size, wanted_.bytes));
  if (Status fits = check_room(size); !fits) return fits;
  if (::ftruncate(data_.get(), static_cast<off_t>(size)) != 0)
    return system_error(data_path() + ": cannot be made so large", errno);
  state_.size = size;
  return Ok{};
}

bool Transfer::is_changed(const ResponseHead& head, std::uint64_t size) const {
  if (state_.size != 0 && size != state_.size) return true;
  // A file whose hash is known cannot change unseen, and other machines of one server may mark it differently.
  const std::string etag = mark_of(head);
  return wanted_.sha256.empty() && state_.size != 0 && etag != state_.etag;
}

Status Transfer::take_ranged_head(Part& part, const ResponseHead& head) {
  const std::string_view text = field_of(head.fields, "content-range");
  const auto range = parse_content_range(text);
  if (!range)
    return contradiction(fmt::format("comes with a Content-Range that is none: '{}'", Printable(text).text()));
  if (is_changed(head, range->size)) {
    is_stale_ = true;
    return contradiction("has changed on the server");
  }
  if (range->begin != part.wanted.begin || range->end > part.wanted.end)
    return contradiction(fmt::format("comes with bytes {} to {}, and {} to {} were asked for", range->begin,
                                     range->end - 1, part.wanted.begin, part.wanted.end - 1));
  if (wanted_.sha256.empty() && mark_of(head).empty()) {
    takes_ranges_ = false;
    return contradiction("comes in parts that nothing marks as those of one version");
  }
  if (state_.size == 0)
    if (Status taken = take_size(range->size); !taken) return taken;
  if (range->end != std::min(part.wanted.end, state_.size))
    return contradiction(fmt::format("comes with bytes {} to {}, and up to {} was asked for", range->begin,
                                     range->end - 1, part.wanted.end - 1));
  part.wanted.end = range->end;
  return Ok{};
}

Status Transfer::take_head(Part& part, const ResponseHead& head) {
  const std::string etag = mark_of(head);
  if (head.status == 206) {
    if (!takes_ranges_) return contradiction("comes as a part, where the whole was asked for");
    if (Status taken = take_ranged_head(part, head); !taken) return taken;
  } else {
    const auto length = parse_length(field_of(head.fields, "content-length"));
    if (!length) return contradiction("comes without its length (Content-Length)");
    if (is_changed(head, *length)) {
      is_stale_ = true;
      return contradiction("has changed on the server");
    }
    if (got_part_) {
      is_odd_ = true;  // one of several machines that are one server; the next may do better
      return contradiction("comes whole, where a part was asked for");
    }
    // What was kept of parts is of no use where they cannot be asked for.
    takes_ranges_ = false;
    if (state_.size == 0)
      if (Status taken = take_size(*length); !taken) return taken;
    if (Status forgotten = forget_state(); !forgotten) return forgotten;
    state_.done = {};
    hash_ = std::make_unique<ipc::Sha256>();
    hashed_ = 0;
    part.wanted = {0, state_.size};
    part.at = 0;
  }
  if (!opened_ && known_.bytes == state_.size && !etag.empty() && etag == known_.etag) {
    is_known_ = true;
    return contradiction("is the one that the store has");
  }
  opened_ = true;
  got_part_ = got_part_ || head.status == 206;
  if (state_.etag.empty()) state_.etag = etag;
  return Ok{};
}

Status Transfer::take_body(Part& part, std::span<const std::byte> bytes) {
  if (bytes.size() > part.wanted.end - part.at)
    return contradiction(fmt::format("comes with more bytes than the {} that it promised", part.wanted.size()));
  for (std::span<const std::byte> rest = bytes; !rest.empty();) {
    const ssize_t wrote = ::pwrite(data_.get(), rest.data(), rest.size(), static_cast<off_t>(part.at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0)
      return Error{ErrorCode::io,
                   fmt::format("{}; what has come is kept: make room (`troupe rm`, `troupe prune`), and pull again",
                               system_error(data_path() + ": cannot be written", errno).message)};
    const auto count = static_cast<std::size_t>(wrote);
    state_.done.add({part.at, part.at + count});
    part.at += count;
    rest = rest.subspan(count);
  }
  return Ok{};
}

Status Transfer::begin_anew(const std::string& why) {
  for (const auto& part : parts_) network_.cancel(part->number);
  parts_.clear();
  if (++restarts_ > kMaxRestarts) return contradiction("changes on the server again and again; try later");
  network_.options().note(fmt::format("{}: {}; beginning anew", what_, why));
  if (Status forgotten = forget_state(); !forgotten) return forgotten;
  if (::ftruncate(data_.get(), 0) != 0) return system_error(data_path() + ": cannot be written", errno);
  state_ = {.url = wanted_.url.text(), .sha256 = wanted_.sha256, .etag = {}, .size = 0, .done = {}};
  hash_ = std::make_unique<ipc::Sha256>();
  hashed_ = done_at_failure_ = 0;
  opened_ = is_stale_ = got_part_ = false;
  return Ok{};
}

Status Transfer::take_end(const Network::Ended& ended) {
  const auto found =
      std::find_if(parts_.begin(), parts_.end(), [&](const auto& each) { return each->number == ended.number; });
  if (found == parts_.end()) return Ok{};  // cancelled
  const std::unique_ptr<Part> part = std::move(*found);
  parts_.erase(found);
  if (is_known_) return Ok{};
  if (is_stale_) return begin_anew("it has changed on the server");
  std::optional<Fault> fault = ended.fault;
  if (fault && std::exchange(is_odd_, false)) fault->may_pass = true;
  // The answer to a request for a part said that parts are of no use: the whole is asked for.
  if (fault && part->is_ranged && !takes_ranges_ && !opened_) return save();
  if (fault && fault->status == 416 && state_.size != 0) return begin_anew("it is shorter on the server now");
  if (!fault && part->at < part->wanted.end)
    fault = Fault{
        contradiction(fmt::format("ended after {} of {} bytes", part->at - part->wanted.begin, part->wanted.size())),
        true,
        {},
        0};
  if (!fault) {
    failures_ = 0;
    return save();
  }
  if (state_.done.total() >= done_at_failure_ + kEnoughProgress) failures_ = 0;
  done_at_failure_ = std::max(done_at_failure_, state_.done.total());
  if (Clock::now() < not_before_) return save();  // what ended one part ended others
  const auto pause = network_.pause_after(*fault, ++failures_, what_);
  if (!pause) return pause.error();
  not_before_ = Clock::now() + *pause;
  return save();
}

Status Transfer::check_magic() {
  std::array<char, 4> first{};
  if (hashed_ != 0 || state_.done.front() < first.size()) return Ok{};
  if (::pread(data_.get(), first.data(), first.size(), 0) != static_cast<ssize_t>(first.size()))
    return system_error(data_path() + ": cannot be read", errno);
  if (first == kMagic) return Ok{};
  forget_data();
  return Error{ErrorCode::bad_model,
               fmt::format("{} is no GGUF file: it begins with '{}'; name the file itself, not a page about it", what_,
                           Printable(std::string_view(first.data(), first.size())).text())};
}

Status Transfer::hash_some(std::uint64_t most) {
  if (Status checked = check_magic(); !checked) return checked;
  std::vector<std::byte> buffer(1 << 20);
  const std::uint64_t end = std::min(state_.done.front(), hashed_ + most);
  while (hashed_ < end) {
    const std::size_t want = std::min<std::uint64_t>(buffer.size(), end - hashed_);
    const ssize_t got = ::pread(data_.get(), buffer.data(), want, static_cast<off_t>(hashed_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(data_path() + ": cannot be read", errno);
    if (got == 0) return Error{ErrorCode::io, data_path() + ": is shorter than it was; another program cut it"};
    hash_->add(std::span(buffer).first(static_cast<std::size_t>(got)));
    hashed_ += static_cast<std::uint64_t>(got);
  }
  return Ok{};
}

// First the data, then what says that they are there. What comes in one stream cannot go on, and is not noted.
Status Transfer::save() {
  if (is_forgotten_ || !takes_ranges_ || state_.size == 0 || state_.done.total() == done_at_save_) return Ok{};
  if (::fdatasync(data_.get()) != 0) return system_error(data_path() + ": cannot be synced", errno);
  saved_ = Clock::now();
  done_at_save_ = state_.done.total();
  return store_.write_whole(state_name(), state_text(state_));
}

// On the disk, too, before data that it names are written over.
Status Transfer::forget_state() {
  const Store::At place = store_.at(state_name());
  done_at_save_ = 0;
  if (::unlinkat(place.fd, place.name.c_str(), 0) != 0 && errno == ENOENT) return Ok{};
  return store_.sync_folder("partial");
}

void Transfer::forget_data() {
  is_forgotten_ = true;
  for (const std::string& inside : {state_name(), data_name()}) {
    const Store::At place = store_.at(inside);
    (void)::unlinkat(place.fd, place.name.c_str(), 0);
  }
}

Status Transfer::run(std::uint64_t front) {
  Status failed = Ok{};
  const auto is_there = [&] {
    if (is_known_) return true;
    return state_.size != 0 && state_.done.front() >= (front == 0 ? state_.size : std::min(front, state_.size));
  };
  if (state_.size != 0) failed = check_room(state_.size);
  while (failed && !is_there()) {
    if (network_.options().stops()) {
      failed = interrupted();
      break;
    }
    begin_parts(front);
    for (const Network::Ended& ended : network_.wait(std::chrono::milliseconds(100)))
      if (failed) failed = take_end(ended);
    if (failed && !is_known_) failed = hash_some(kHashAtOnce);
    if (failed && Clock::now() >= saved_ + kSaveEvery) failed = save();
    options_.progress(state_.done.total(), state_.size);
    if (parts_.empty() && !is_there() && Clock::now() < not_before_)
      std::this_thread::sleep_for(
          std::min<Clock::duration>(std::chrono::milliseconds(100), not_before_ - Clock::now()));
  }
  for (const auto& part : parts_) network_.cancel(part->number);
  parts_.clear();
  // What came before a contradiction cannot be told from what is wrong, unless a hash will.
  if (!failed && failed.error().code == ErrorCode::protocol && wanted_.sha256.empty()) {
    forget_data();
    return failed;
  }
  if (const Status saved = save(); failed && !saved) failed = saved;
  return failed;
}

Result<StoredFile> Transfer::finish() {
  while (hashed_ < state_.size) {
    if (network_.options().stops()) return interrupted();
    if (Status hashed = hash_some(kHashAtOnce); !hashed) return hashed.error();
    options_.progress(state_.done.total(), state_.size);
  }
  const std::string sha256 = hash_->hex();
  if (!wanted_.sha256.empty() && sha256 != wanted_.sha256) {
    forget_data();
    return Error{ErrorCode::io, fmt::format("{}: its SHA-256 is {}, and {} was promised; nothing of it was kept", what_,
                                            sha256, wanted_.sha256)};
  }
  const std::string blob = "blobs/" + blob_name(sha256);
  const Store::At from = store_.at(data_name()), to = store_.at(blob);
  if (::fsync(data_.get()) != 0) return system_error(data_path() + ": cannot be synced", errno);
  if (::renameat(from.fd, from.name.c_str(), to.fd, to.name.c_str()) != 0)
    return system_error(store_.path_of(blob) + ": cannot be made", errno);
  for (const char* const folder : {"blobs", "partial"})
    if (Status synced = store_.sync_folder(folder); !synced) return synced.error();
  (void)::unlinkat(from.fd, store_.at(state_name()).name.c_str(), 0);
  return StoredFile{wanted_.name, sha256, state_.size, wanted_.url.text(), state_.etag};
}

// The lock of a file that another process may be fetching; the wait can be interrupted.
Result<StoreLock> lock_waiting(const Store& store, Network& network, const WantedFile& wanted) {
  for (bool told = false;; told = true) {
    auto lock = store.lock_partial(key_of(wanted), false);
    if (!lock) return lock.error();
    if (*lock) return *std::move(*lock);
    if (!told)
      network.options().note(fmt::format("{}: another `troupe pull` fetches it; waiting for that ({})",
                                         Printable(wanted.name, 128).text(),
                                         store.path_of(fmt::format("partial/{}.lock", key_of(wanted)))));
    if (network.options().stops()) return interrupted();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

namespace {

// What a model of the store has from this address.
Result<StoredFile> known_file(const Store& store, const Url& url) {
  const auto listing = store.list();
  if (!listing) return listing.error();
  for (const StoredModel& model : listing->models)
    for (const StoredFile& file : model.files)
      if (file.url == url.text() && !file.etag.empty())
        if (const auto has = store.has_blob(file.sha256, file.bytes); has && *has) return file;
  return StoredFile{};
}

}  // namespace

Result<StoredFile> fetch_file(const Store& store, Network& network, const WantedFile& wanted,
                              const TransferOptions& options, std::vector<StoreLock>& held) {
  auto lock = lock_waiting(store, network, wanted);
  if (!lock) return lock.error();
  StoredFile known;
  if (!wanted.sha256.empty()) {  // perhaps by the other process
    const auto has = store.has_blob(wanted.sha256, wanted.bytes);
    if (!has) return has.error();
    if (*has) {
      options.progress(wanted.bytes, wanted.bytes);
      return StoredFile{wanted.name, wanted.sha256, wanted.bytes, wanted.url.text(), {}};
    }
  } else {
    auto found = known_file(store, wanted.url);
    if (!found) return found.error();
    known = *std::move(found);
    held.push_back(std::move(*lock));
  }
  Transfer transfer(store, network, wanted, options, known);
  if (Status opened = transfer.open(); !opened) return opened.error();
  if (Status ran = transfer.run(0); !ran) return ran.error();
  if (!transfer.is_known()) return transfer.finish();
  transfer.forget_data();
  options.progress(known.bytes, known.bytes);
  known.name = wanted.name;
  return known;
}

Result<std::string> fetch_front(const Store& store, Network& network, const WantedFile& wanted, std::uint64_t least,
                                const TransferOptions& options) {
  const auto lock = lock_waiting(store, network, wanted);
  if (!lock) return lock.error();
  Transfer transfer(store, network, wanted, options, {});
  if (Status opened = transfer.open(); !opened) return opened.error();
  if (Status ran = transfer.run(least); !ran) return ran.error();
  return transfer.data_path();
}

void forget_partial(const Store& store, const WantedFile& wanted) {
  const std::string key = key_of(wanted);
  const auto lock = store.lock_partial(key, false);
  if (!lock || !*lock) return;
  for (const char* const end : {".json", ".data"}) (void)::unlinkat(store.at("partial").fd, (key + end).c_str(), 0);
}

std::uint64_t arrived_bytes(const Store& store, const WantedFile& wanted) {
  const auto state = read_state(store, key_of(wanted));
  return state ? state->done.total() : 0;
}

}  // namespace troupe::cli
