// Named conversations: a request that names one continues it, and its answer becomes part of it.
//
// A turn: begin() takes the session for one request; the intake load()s its tokens, to which the request's are
// appended; the sink of wrap() collects the answer. When the stream ends, the tokens are written and synced, and only
// then the client gets the end: an answer that has ended for its client is on disk. A turn that was refused or failed,
// or that was cancelled (or met its deadline) before its first token, leaves the session as it was; one that was
// cancelled later keeps the tokens that were delivered. An end-of-answer token that the model chose is not part of the
// session, as it is not part of the answer: the session's tokens are exactly those that its clients have sent and got,
// so that one request with all of them as its prompt continues with the same bits.
//
// The contents (K, V, state) are saved apart, after the end: the batch copies the blocks to memory between its steps,
// in parts (SessionSaving), and a thread of its own writes them. Copying a turn's blocks costs less than its last token
// did, which read them all; what waits for the disk is bounded by max_session_buffer_bytes, and what a tenant writes by
// max_session_write_rate: what is above is not saved, and computed again if the prefix cache has lost it. Copies,
// checksums and writes are charged to the tenant as its computing is.
//
// The index and this class decide, session_files.h changes the files so that the last decision holds. Jobs that wait
// for small files only (tokens, headers) have a thread, those with contents another one. On either the tenants take
// turns by the time that their jobs took (TurnThread), those of one tenant in the order they were posted. There are at
// most three for each open stream, and two for each open question, of which a tenant may have
// max_session_questions_per_user. A list reads each file once: what it found is kept in the index until the session
// changes.
//
// What has been answered is on disk: the tokens of a turn or a fork before its end is told, the contents before a save
// is answered, a deletion before it is. Nothing that was decided earlier undoes it. A session is evicted before the
// files that need its room are written.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "actors/requests/request.h"
#include "actors/requests/session_info.h"
#include "actors/sessions/session_files.h"
#include "actors/sessions/session_index.h"
#include "actors/sessions/session_store.h"
#include "actors/threads/turn_thread.h"
#include "scheduler/shares/shared_limit.h"
#include "scheduler/shares/token_bucket.h"

namespace troupe::actors {

class Sessions;

[[nodiscard]] std::uint64_t unix_seconds();  // since 1970

// Contents that are being copied from blocks. Destroyed without commit(), they are not saved.
class SessionSaving {
 public:
  SessionSaving(std::shared_ptr<SessionTurn> turn, engine::SequenceRecord record,
                std::unique_ptr<engine::SequenceImage> image);
  ~SessionSaving();
  SessionSaving(const SessionSaving&) = delete;
  SessionSaving& operator=(const SessionSaving&) = delete;

  engine::SequenceImage& image() { return *image_; }  // for the compute thread
  // The image is complete: writes it, on a thread of Sessions. charge: called there afterwards, with the seconds of
  // computing (checksum, copies) that it took, without the disk's time; may be empty.
  static void commit(std::shared_ptr<SessionSaving> saving, std::function<void(double)> charge);

 private:
  friend class Sessions;
  const std::shared_ptr<SessionTurn> turn_;
  const engine::SequenceRecord record_;
  const std::unique_ptr<engine::SequenceImage> image_;
};

// The model that a turn is to be computed by.
struct SessionModel {
  std::shared_ptr<const engine::LoadedModel> model{};
  std::uint64_t template_digest = 0;  // ServedModel::template_digest()
};

// A request's hold on a session, until its end is stored. Thread-safe. Its Sessions outlive it.
class SessionTurn : public std::enable_shared_from_this<SessionTurn> {
 public:
  using Loaded = std::variant<std::vector<TokenId>, scheduler::Refusal>;

  SessionTurn(Sessions& sessions, SessionUse use, scheduler::Tenant tenant, bool recompute);
  ~SessionTurn();
  SessionTurn(const SessionTurn&) = delete;
  SessionTurn& operator=(const SessionTurn&) = delete;

  [[nodiscard]] bool is_new() const { return use_.is_new; }
  [[nodiscard]] const std::string& name() const { return use_.key.name; }
  // What was wrong with its contents; empty: nothing, or it was taken.
  [[nodiscard]] std::string take_problem();

  // Reads the session's tokens, none if it is new, and checks that they are this model's, or, to be recomputed, those
  // of one with its vocabulary and chat template. `done` is called once, on a thread of Sessions. May be repeated.
  void load(SessionModel model, std::function<void(Loaded)> done);
  // After load(): the numerics_id under which the session was computed until now, if it is another than the model's,
  // so that all its tokens are computed anew. Empty: it goes on as it was.
  [[nodiscard]] std::string recomputed_from() const;
  // All tokens of the request: the session's and its own. After load().
  void set_prompt(std::vector<TokenId> prompt);

  // How many of the prompt's first tokens have contents on disk or in image(); less than the prompt has. 0: there are
  // none, or they cannot be used.
  [[nodiscard]] std::uint32_t num_saved() const;
  // The contents after num_saved() tokens; null: they have not been read.
  [[nodiscard]] std::shared_ptr<const engine::SequenceImage> image() const;
  // Reads them, unless they are being read already; `done` is called once, on a thread of Sessions. If that fails, or
  // there is no memory for it at the moment (then done is called before the return), num_saved() is 0 from then on.
  void read_image(std::function<void()> done);
  void forget_image();  // it is not needed any more: num_saved() is 0
  // Memory for the contents after num_computed of these tokens; null: there is none at the moment.
  [[nodiscard]] std::shared_ptr<SessionSaving> save(std::vector<TokenId> tokens, std::uint32_t num_computed);

 private:
  friend class Sessions;
  friend class SessionSaving;
  Loaded read_tokens(const SessionModel& by);
  std::optional<engine::SequenceRecord> record_with(const std::vector<TokenId>& answer) const;
  void contents_unusable(const Error& why);

  Sessions& sessions_;
  const SessionUse use_;
  const scheduler::Tenant tenant_;
  const bool recompute_;

  mutable std::mutex mutex_;  // for the members below
  std::shared_ptr<const engine::LoadedModel> model_;
  engine::SequenceRecord record_;  // its tokens: the prompt, once it is set
  bool has_prompt_ = false;
  std::string recomputed_from_;
  std::optional<engine::SequenceFile> contents_;
  std::uint32_t num_saved_ = 0;
  std::shared_ptr<const engine::SequenceImage> image_;
  std::string problem_;                         // told with the end of the turn
  std::uint64_t image_bytes_ = 0;               // counted against the buffers
  std::vector<std::function<void()>> readers_;  // of the image that is being read
};

// Thread-safe.
class Sessions {
 public:
  using Log = std::function<void(const std::string&)>;
  // Makes the directory, unless it is there, and reads it: callers of the other functions wait for no disk. cpus: of
  // its threads, as ThreadPool. log: gets what a guest is told without its folders, from any thread; may be empty.
  // clock: measures the turns of tenants.
  Sessions(const SessionsPlace& place, const config::SessionLimits& limits, const std::vector<int>& cpus, Log log = {},
           TurnThread::Clock clock = std::chrono::steady_clock::now);
  ~Sessions();  // as finish()

  // Ok, or why no session is served.
  [[nodiscard]] Status status() const;
  // What was in the way when the directory was read, each for one session or one tenant, with its path.
  [[nodiscard]] std::vector<std::string> problems() const;

  using Begun = std::variant<std::shared_ptr<SessionTurn>, scheduler::Refusal>;
  // recompute: continue also if the session was computed under other numerics of the same model, or by a model of the
  // same vocabulary and chat template.
  [[nodiscard]] Begun begin(const scheduler::Tenant& tenant, const std::string& name, bool recompute);
  // A sink that stores the turn before it passes on the end. It has one choice.
  [[nodiscard]] std::shared_ptr<StreamSink> wrap(std::shared_ptr<SessionTurn> turn, std::shared_ptr<StreamSink> sink);

  using OnAnswer = std::function<void(SessionAnswer)>;
  // `done` is called once, on a thread of Sessions or before the return. Refused (quota) with a time to try again while
  // as many questions of the tenant are open as may be.
  void ask(const SessionQuestion& question, OnAnswer done);

  // From now on questions that have not begun to be answered are refused (draining), and new ones: clients that ask
  // again and again do not keep when_idle() waiting. What is to be written or deleted is.
  void refuse_questions() { draining_ = true; }
  // Calls `done` once no turn is open and nothing waits to be read or written; at once if that is so now.
  void when_idle(std::function<void()> done);
  // Runs what waits, and joins the threads. Then no turn may be open but those of streams that have ended.
  void finish();

 private:
  friend class SessionTurn;
  friend class SessionSaving;
  enum class Size : std::uint8_t { small, large };

  Status open();
  void add(const std::vector<SessionStore::Found>& found, const std::vector<SessionProblem>& problems);
  std::optional<scheduler::Refusal> why_unreadable(TenantId tenant) const;
  std::optional<scheduler::Refusal> read_again(TenantId tenant);
  void read_again_later(TenantId tenant);
  void post(Size size, TenantId tenant, std::function<void()> job);
  void answer(const SessionQuestion& question, OnAnswer done);
  void answer_of_readable(const SessionQuestion& question, OnAnswer done);
  void one_less();
  void end_turn(const std::shared_ptr<SessionTurn>& turn, End end, const std::vector<TokenId>& answer,
                const std::shared_ptr<StreamSink>& sink);
  std::optional<Evicted> end_use(const SessionUse& use);
  std::string store_turn(SessionTurn& turn, const engine::SequenceRecord& record);
  void write_contents(SessionSaving& saving);
  void remove_all(const std::vector<Evicted>& gone);
  void count_again(const SessionUse& use, const scheduler::Tenant& tenant, SessionPart part, std::uint64_t bytes);
  void changed(const SessionUse& use);
  void saving_ended(const SessionKey& key);
  SessionAnswer fork(const SessionUse& from, const SessionUse& to, const scheduler::Tenant& tenant);
  bool link_contents(const SessionUse& from, const SessionUse& to, const scheduler::Tenant& tenant);
  [[nodiscard]] std::optional<SessionInfo> info(const SessionUse& session, bool with_anchors);
  void ask_list(TenantId tenant, OnAnswer done);
  void ask_fork(const SessionQuestion& question, const OnAnswer& done);
  void ask_remove(const SessionQuestion& question, const OnAnswer& done);
  std::variant<SessionUse, scheduler::Refusal> look_up(const SessionQuestion& question) const;
  // False: there is no room.
  bool take_buffer(const scheduler::Tenant& tenant, std::uint64_t bytes);
  void give_buffer_back(const scheduler::Tenant& tenant, std::uint64_t bytes);
  bool take_write(TenantId tenant, std::uint64_t bytes);
  // To the log, and returned with the end of the turn.
  void report(const std::string& problem) const {
    if (log_) log_(problem);
  }

  const std::string directory_;
  const Log log_;
  const std::vector<int> cpus_;
  const TurnThread::Clock clock_;
  const std::uint32_t max_questions_;  // of a tenant
  const double write_rate_;            // bytes per second, likewise
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;  // for the members below; of the files and the threads for their making alone
  Status status_ = Ok{};
  std::optional<SessionFiles> files_;
  std::vector<std::string> problems_;
  std::map<TenantId, std::string> unreadable_;  // tenants whose folder could not be used, and why
  std::set<TenantId> being_read_;               // of these, by read_again_later()
  SessionIndex index_;
  scheduler::SharedLimit buffers_;
  std::map<TenantId, std::uint32_t> num_questions_;    // open ones
  std::map<TenantId, scheduler::TokenBucket> writes_;  // in bytes; of tenants whose bucket is not full
  std::map<SessionKey, std::uint32_t> num_saving_;
  std::multimap<SessionKey, std::function<void()>> after_saving_;
  std::uint64_t num_open_ = 0;  // turns and jobs
  std::vector<std::function<void()>> when_idle_;
  std::optional<TurnThread> small_, large_;
};

}  // namespace troupe::actors
