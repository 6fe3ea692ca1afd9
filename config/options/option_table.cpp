// The rows of the table: the flag, TROUPE_* variable and troupe.toml key of every option, with range, unit and help.
//
// Spellings follow llama.cpp; vLLM's are aliases where they differ. Within a subcommand every spelling is unique, and
// names (keys, variables) are unique throughout: tests/config checks both.
#include <tuple>

#include "config/draft_limit.h"
#include "config/options/option.h"

namespace troupe::config {
namespace {

// In the order of Command.
using OptionSets =
    std::tuple<ServeOptions, RunOptions, BenchOptions, EvalOptions, TokenizeOptions, InspectOptions, StatusOptions,
               TopOptions, VersionOptions, LoadOptions, ProbeOptions, PerplexityOptions, EmbedOptions, UsageOptions,
               SessionOptions, ModelCommandOptions, KeyCommandOptions, ChatOptions, VerifyOptions, CompletionOptions,
               BackupOptions, RestoreOptions, ToolsCommandOptions, SchemaCommandOptions, GrammarCommandOptions,
               DoctorOptions, PullCommandOptions, ListOptions, RemoveOptions, PruneOptions>;

static_assert(kMaxDraftTokens == 16);  // as the help of spec-draft-n-max says
static_assert(kClientCommands == (sets_with<SocketOptions, OptionSets>() & ~bit(Command::serve)));
static_assert(kTextCommands == sets_with<TokenTextOptions, OptionSets>());

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kHours = 3600e3;
constexpr Range kAny{};
constexpr Range within(double min, double max) { return {min, max, false}; }
constexpr Range range_of(const SamplingNumber& number) { return {number.min, number.max, number.above_min}; }

// The last two fields of a row.
constexpr Changes kReloads = Changes::by_reload, kNeedsRestart = Changes::by_restart, kPerRequest = Changes::by_request;
constexpr bool kFlagOnly = true;

constexpr std::string_view kModel = "Model";
constexpr std::string_view kServer = "Server";
constexpr std::string_view kLimits = "Limits";
constexpr std::string_view kLogging = "Logging";
constexpr std::string_view kRequest = "Request";
constexpr std::string_view kSampling = "Sampling (llama.cpp's defaults)";
constexpr std::string_view kMeasure = "Measurement";
constexpr std::string_view kPace = kPaceHeading;
constexpr std::string_view kPrompts = kRequestsHeading;
constexpr std::string_view kFaults = kFaultsHeading;
constexpr std::string_view kTenants = "Tenants";
constexpr std::string_view kGoals = "Goals (exit code 1 when one is missed)";
constexpr std::string_view kInputOutput = "Input and output";
constexpr std::string_view kConfiguration = "Configuration";
constexpr std::string_view kStore = "Store of models";
constexpr std::string_view kNetwork = "Network";

}  // namespace

template <class T, class Group>
OptionPlace::OptionPlace(T Group::*member)
    : field(static_cast<T Options::*>(member)),
      commands(sets_with<Group, OptionSets>()),
      kept_groups(sets_with<Group, KeptGroups>()) {}

std::span<const Option> option_table() {
  static const std::vector<Option> table{
      {&ModelOptions::model, "model", "-m", kModel, "FILE", kAny,
       "the model: a GGUF file, of a split one the first, or the name of a model that `troupe list` shows; none: the "
       "embedded one (probe: a size to read at; none: 1 GiB). "
       "serve: may be given several times, as NAME=FILE: requests name their model, and the first is the default"},
      {&ModelOptions::hf_repo, "hf-repo", "-hf -hfr", kModel, "ORG/NAME[:QUANT]", kAny,
       "as -m with the name of a model that `troupe pull` has fetched; where it is missing and a person can be asked, "
       "it "
       "is asked for",
       kNeedsRestart, kFlagOnly},
      {&ServerOptions::models_dir, "models-dir", "", kModel, "DIR", kAny,
       "serve each model file of this folder, too, by its name without .gguf: it is loaded once a request asks for it, "
       "and put out for others. SIGHUP looks again what there is; none: only what -m and tables name",
       kReloads},
      {&ServerOptions::models_store, "models-store", "", kModel, "", kAny,
       "likewise each model that `troupe list` shows to the server's user, by its name there", kReloads},
      {&OnRequestLimits::models_max, "models-max", "", kModel, "N", within(0, 64),
       "how many models that were loaded on request are in memory at a time, beside those of the start; 0: as many as "
       "--memory holds"},
      {&ServerOptions::keep_alive, "keep-alive", "", kModel, "TIME", kAny,
       "put a model that was loaded on request out of memory when nothing has asked for it for this long (of "
       "all of them; in troupe.toml of those whose table has none); 0: with its last request; forever: only for other "
       "models"},
      {&ServerOptions::draft, "draft", "-md --model-draft", kModel, "FILE", kAny,
       "draft model for speculative decoding, best of the same vocabulary: with --spec-type draft or auto"},
      {&SpeculationOptions::spec_type, "spec-type", "", kModel, "TYPE", kAny,
       "what drafts tokens, which a step verifies together: ngram (the text so far), suffix (also the user's earlier "
       "answers), draft (a draft model), auto (that where it pays, else suffix), off. Never changes an answer; none: "
       "auto (run: what the server was started with, as for the next three)",
       kPerRequest},
      {&SpeculationOptions::spec_draft_n_max, "spec-draft-n-max", "--draft-max --draft-n", kModel, "TOKENS",
       within(-1, kMaxDraftTokens),
       "longest draft; how much is verified follows from its acceptance and the step's room; -1: 16", kPerRequest},
      {&SpeculationOptions::spec_draft_n_min, "spec-draft-n-min", "--draft-min", kModel, "TOKENS",
       within(-1, kMaxDraftTokens), "shorter drafts are not used; -1: 0", kPerRequest},
      {&SpeculationOptions::spec_draft_p_min, "spec-draft-p-min", "--draft-p-min", kModel, "P", within(-1, 1),
       "a draft model's draft ends before a token of lower probability; -1: 0", kPerRequest},
      {&ToolFormatOptions::tool_format, "tool-format", "", kModel, "NAME", kAny,
       "how the models write calls of tools, by its name in `troupe tools formats`; none: as the chat template says"},
      {&ServerOptions::chat_template, "chat-template", "--chat-template-file", kModel, "TEMPLATE", kAny,
       "what makes prompts of messages, in Jinja: a file, a name of docs/chat.md, or of a template in the model's "
       "file; "
       "none: the model's own"},
      {&ContextOptions::ctx_size, "ctx-size", "-c --max-model-len", kModel, "TOKENS", within(0, 1 << 24),
       "longest sequence, prompt and answer together; 0: as long as the model was trained for"},
      {&ThreadOptions::threads, "threads", "-t", kModel, "N", within(0, 1024),
       "compute threads; 0: all allowed cores up to 4, one fewer above"},
      {&EngineOptions::kv_type, "kv-type", "-ctk -ctv --cache-type-k --cache-type-v --kv-cache-dtype", kModel,
       "f16|f32|int8|q8_0", kAny,
       "number format of the KV cache, K and V alike: int8 takes half of f16; q8_0 is another name for it"},
      {&FitOptions::state_type, "state-type", "", kModel, "f32|f16", kAny,
       "how snapshots of recurrent state are kept; f16 takes half, and rounds the state where snapshots are taken"},
      {&EngineOptions::state_snapshot_every, "state-snapshot-every", "", kModel, "TOKENS", within(32, 1 << 20),
       "positions between two snapshots of recurrent state, a multiple of 32; with f32 one more at the end of a "
       "prompt"},
      {&BudgetOptions::memory, "memory", "", kModel, "SIZE", within(0, 1024.0 * 1024.0 * kGiB),
       "budget for weights, vocabulary and KV cache together; 0: 60 % of what is available"},
      {&ServerOptions::kv_blocks, "kv-blocks", "--num-gpu-blocks-override", kModel, "N", within(0, 1 << 30),
       "KV blocks of 32 tokens; 0: what the memory budget leaves"},
      {&FitOptions::kernels, "kernels", "", kModel, "VARIANT", kAny,
       "kernel variant, as `troupe version` lists them; none: by --optimize"},
      {&FitOptions::optimize, "optimize", "", kModel, "auto|latency|throughput|measure", kAny,
       "what the kernel variant is chosen for: the speed of one stream, or of many; measure: the fastest for one row "
       "and eight, measured once and kept beside the probe; auto: throughput. Answers of two variants differ in their "
       "last bits"},
      {&EngineOptions::ternary, "ternary", "", kModel, "auto|multiply|lookup|trits", kAny,
       "how ternary weights are multiplied: with multiply-adds (2.1 bits per weight), by sums in lookup tables (1.75) "
       "or with multiply-adds of packed trits (1.6); answers are the same; auto: measured at load"},
      {&EngineOptions::weights_cache, "weights-cache", "", kModel, "DIR", kAny,
       "keep weights on disk as they are packed, to load them faster next time; auto: weights in $CACHE_DIRECTORY, "
       "$XDG_CACHE_HOME/troupe or ~/.cache/troupe; none, off: pack them each time"},
      {&EngineOptions::weights_cache_size, "weights-cache-size", "", kModel, "SIZE", within(0, 1024.0 * 1024.0 * kGiB),
       "most that the weights cache may take; what was not used for longest goes first; 0: any size"},

      {&SocketOptions::socket, "socket", "--uds", kServer, "PATH", kAny,
       "Unix socket; none: $XDG_RUNTIME_DIR/troupe/troupe.sock, without that directory ~/.troupe/HOST.sock, for root "
       "/run/troupe/troupe.sock (clients try TROUPE_HOST first, then all of them)"},
      {&SocketOptions::no_strict_modes, "no-strict-modes", "", kServer, "", kAny,
       "warn where other users could put another server in the socket's place (a directory that they can write to, a "
       "server of an unexpected user), instead of refusing it"},
      {&ServerOptions::alias, "alias", "-a --served-model-name", kServer, "NAME,...", kAny,
       "the name that clients call the first model, and further ones that they may call it by; none: the one in the "
       "file"},
      // Not the same key as `alias`: clients read the server's configuration file too, and may talk to another server.
      {&ModelNameOptions::model_name, "model-name", "-a --alias --served-model-name", kServer, "NAME", kAny,
       "the model to ask for, by the server's name for it; none: the one that the server has"},
      {&ServerOptions::allow_uid, "allow-uid", "", kServer, "UID,...", within(0, 4294967294.0),
       "further users who may connect; none: only the one who runs the server, and root", kReloads},
      {&ServerOptions::allow_gid, "allow-gid", "", kServer, "GID,...", within(0, 4294967294.0),
       "groups whose members may connect", kReloads},
      {&ServerOptions::allow_user, "allow-user", "", kServer, "NAME,...", kAny, "as --allow-uid, by name", kReloads},
      {&ServerOptions::allow_group, "allow-group", "", kServer, "NAME,...", kAny, "as --allow-gid, by name", kReloads},
      {&ServerOptions::listen, "listen", "", kServer, "ADDRESS,...", kAny,
       "speak HTTP over TCP, too: tcp://127.0.0.1:8080, tcp://[::1]:8080; none: on the Unix socket alone. Without keys "
       "the kernel says which user of this machine is calling"},
      {&ServerOptions::no_auth, "no-auth", "", kServer, "", kAny,
       "let every program on this machine use the TCP addresses, without a key and whichever user it is"},
      {&ServerOptions::open, "open", "", kServer, "", kAny,
       "print the page's address, with a key that the first tab to open it gets; needs --listen"},
      {&ServerOptions::allow_host, "allow-host", "", kServer, "NAME,...", kAny,
       "further names that HTTP clients over TCP may call this server by, besides localhost, 127.0.0.1 and [::1]",
       kReloads},
      {&ServerOptions::cors_origin, "cors-origin", "", kServer, "ORIGIN,...", kAny,
       "web sites whose pages may use this server over TCP: https://example.org, or * for all; none: only its own",
       kReloads},
      {&SessionsDirOptions::sessions_dir, "sessions-dir", "", kServer, "DIR", kAny,
       "where sessions are kept, a directory of the server's own; \"auto\": $STATE_DIRECTORY/sessions, else "
       "$XDG_STATE_HOME/troupe/sessions or ~/.local/state/troupe/sessions; none, off: no session is served (session: "
       "what repair looks at)"},
      {&DrainOptions::drain_timeout, "drain-timeout", "--shutdown-timeout --graceful-termination-timeout", kServer,
       "TIME", within(0, 24 * kHours), "how long SIGTERM waits for running answers before it ends them"},
      {&ServerOptions::idle_exit, "idle-exit", "", kServer, "TIME", within(0, 24 * kHours),
       "end when nobody has been connected for this long, for a service that its socket starts; 0: never", kReloads},
      {&DrainOptions::progress_timeout, "progress-timeout", "", kServer, "TIME", within(1, 24 * kHours),
       "how long work may wait without a step ending before health says stalled; more than the longest step. An I/O "
       "thread that is so late twice in a row ends the server (exit code 1), for systemd to start it again"},
      {&IntegrityOptions::canary_interval, "canary-interval", "", kServer, "TIME", within(0, 365 * 24 * kHours),
       "how often each model computes fixed tokens, whose bits must be those of its load; else it is taken out, and "
       "loaded again from its file; 0: only once it is loaded"},
      {&IntegrityOptions::scrub_rate, "scrub-rate", "", kServer, "SIZE", within(0, 1024 * kGiB),
       "how much of the weights in memory is compared with their checksums a second, in passes that begin every ten "
       "minutes; 0: none"},
      {&ServerOptions::canary_file, "canary-file", "", kServer, "FILE", kAny,
       "where the bits of each model's fixed tokens are recorded, for later starts to compare with; auto: "
       "canaries.json in $STATE_DIRECTORY, $XDG_STATE_HOME/troupe or ~/.local/state/troupe; off: nowhere"},

      {&UsageFileOptions::usage_db, "usage-db", "", kServer, "FILE", kAny,
       "keep what each tenant has used in this file; auto: usage.db in $STATE_DIRECTORY, $XDG_STATE_HOME/troupe or "
       "~/.local/state/troupe; off: keep no account (`troupe usage` reads the file where no server answers)"},
      {&ServerOptions::usage_days, "usage-days", "", kServer, "DAYS", within(1, 36'500),
       "how long the account of usage is kept"},

      {&TcpOptions::tls_cert, "tls-cert", "--ssl-certfile --ssl-cert-file", kServer, "FILE", kAny,
       "speak TLS over TCP, with this certificate (PEM, the chain behind it); SIGHUP reads it again; none: no TLS",
       kReloads},
      {&TcpOptions::tls_key, "tls-key", "--ssl-keyfile --ssl-key-file", kServer, "FILE", kAny,
       "the private key of --tls-cert (PEM, without passphrase), which other users must not be able to read", kReloads},
      {&KeysFileOptions::keys_file, "keys-file", "", kServer, "FILE", kAny,
       "the keys of clients that come over TCP, made by `troupe key`; auto: the credential troupe-keys "
       "($CREDENTIALS_DIRECTORY), else the file keys in $STATE_DIRECTORY, $XDG_STATE_HOME/troupe or "
       "~/.local/state/troupe; SIGHUP reads it again",
       kReloads},

      {&ParallelOptions::max_sequences, "parallel", "-np --max-num-seqs", kLimits, "N", within(1, 4096),
       "sequences computed at once"},
      {&StepLimits::max_step_tokens, "max-step-tokens", "-b --batch-size --max-num-batched-tokens", kLimits, "TOKENS",
       within(1, 65536), "tokens of one step, all sequences together"},
      {&StepLimits::max_stall, "max-stall", "", kLimits, "TIME", within(1, 24 * kHours),
       "how long one step with parts of prompts may hold up running answers, and twice that where none run; at least "
       "32 tokens, or 64, are computed in each"},
      {&StreamLimits::max_queued_requests, "max-queued-requests", "--max-num-queued-reqs", kLimits, "N",
       within(1, 1 << 20), "requests that may wait; more are refused. A guest may have a quarter of them"},
      {&StreamLimits::max_parked_requests, "max-parked-requests", "", kLimits, "N", within(1, 1 << 20),
       "requests whose clients do not read; one more ends the slowest reader of the user with most of them. A guest "
       "with a quarter of them gets no new ones"},
      {&StreamLimits::max_queued_tokens, "max-queued-tokens", "--max-num-queued-tokens", kLimits, "TOKENS",
       within(1, 4294967296.0),
       "prompt tokens that may wait, all requests together; a guest may have a quarter of them"},
      {&TextLimits::max_queued_texts, "max-queued-texts", "", kLimits, "N", within(1, 65536),
       "texts that may wait to be tokenized or decoded, short prompts apart; a guest may have a quarter of them"},
      {&TextLimits::max_queued_text_bytes, "max-queued-text-bytes", "", kLimits, "SIZE", within(1, 64 * kGiB),
       "these texts, together; a guest may have a quarter of it"},
      {&StreamLimits::max_embed_bytes, "max-embed-bytes", "", kLimits, "SIZE", within(1, 64 * kGiB),
       "texts and vectors of all requests for vectors, together; a guest may have a quarter of it"},
      {&StreamLimits::max_requests_per_user, "max-requests-per-user", "", kLimits, "N", within(1, 1 << 20),
       "requests of one user, waiting or running"},
      {&ConnectionLimits::max_connections, "max-connections", "", kLimits, "N", within(1, 65536),
       "open connections; some are kept for the user who runs the server", kReloads},
      {&ConnectionLimits::max_connections_per_uid, "max-connections-per-uid", "", kLimits, "N", within(1, 65536),
       "open connections of one user", kReloads},
      {&ConnectionLimits::max_streams, "max-streams", "", kLimits, "N", within(1, 1 << 20),
       "requests at once on one connection"},
      {&ConnectionLimits::max_frame_bytes, "max-frame-bytes", "", kLimits, "SIZE", within(4096, 16.0 * 1024 * 1024),
       "longest message on the socket"},
      {&ConnectionLimits::max_outbox_bytes, "max-outbox-bytes", "", kLimits, "SIZE", within(4096, kGiB),
       "output that may wait for one client that does not read, before it is disconnected", kReloads},
      {&ConnectionLimits::max_buffer_bytes, "max-buffer-bytes", "", kLimits, "SIZE", within(1024.0 * 1024, 1024 * kGiB),
       "half of it for messages half read, half for answers unread, of all clients together; at least four times "
       "max-frame-bytes. A guest may have a quarter of each"},
      {&ConnectionLimits::max_frames_per_second, "max-frames-per-second", "", kLimits, "N", within(1, 1 << 30),
       "messages that one user's clients may send in a second; what comes faster is read later", kReloads},
      {&ConnectionLimits::max_questions_per_second, "max-questions-per-second", "", kLimits, "N", within(1, 1 << 30),
       "questions for health, status and models that one user may ask in a second; more are refused", kReloads},
      {&ConnectionLimits::max_refusals_per_second, "max-refusals-per-second", "", kLimits, "N", within(1, 1 << 30),
       "once five times as many requests of one tenant were refused in a row, its next ones are read so many a second",
       kReloads},
      {&ConnectionLimits::stall_timeout, "stall-timeout", "", kLimits, "TIME", within(1, 24 * kHours),
       "how long a client may read nothing before it is disconnected", kReloads},
      {&ConnectionLimits::body_timeout, "body-timeout", "", kLimits, "TIME", within(1, 24 * kHours),
       "how long one message or the body of an HTTP request may take to arrive, and a second more for each 16 KiB of "
       "it",
       kReloads},
      {&ConnectionLimits::hello_timeout, "hello-timeout", "", kLimits, "TIME", within(1, 24 * kHours),
       "how long a new connection may take to say hello", kReloads},
      {&ConnectionLimits::idle_timeout, "idle-timeout", "", kLimits, "TIME", within(0, 365 * 24 * kHours),
       "end connections that ask for nothing this long; 0: never", kReloads},
      {&ConnectionLimits::keep_alive_timeout, "keep-alive-timeout", "--timeout-keep-alive", kLimits, "TIME",
       within(1, 24 * kHours), "how long an HTTP connection is kept between two requests", kReloads},
      {&OnRequestLimits::max_waiting_for_models, "max-waiting-for-models", "", kLimits, "N", within(1, 65536),
       "requests that may wait for their model to be loaded; a guest may have a quarter of them"},
      {&OnRequestLimits::max_model_wait, "max-model-wait", "", kLimits, "TIME", within(1, 24 * kHours),
       "how long a request may wait for its model, while others use the memory; its own deadline may be shorter"},
      {&SessionLimits::max_sessions_per_user, "max-sessions-per-user", "", kLimits, "N", within(1, 1 << 20),
       "sessions of one user; for one more, that of the same user which was not used for longest is deleted"},
      {&SessionLimits::max_session_questions_per_user, "max-session-questions-per-user", "", kLimits, "N",
       within(1, 1 << 20),
       "questions about sessions (list, inspect, save, fork, delete) of one user that are open at once"},
      {&SessionLimits::max_session_bytes, "max-session-bytes", "", kLimits, "SIZE", within(1, 1024.0 * 1024 * kGiB),
       "what the sessions of one user may take on disk; for more, the K and V of those go first that were not used for "
       "longest (they are computed again when they are needed), then whole sessions"},
      {&SessionLimits::max_total_session_bytes, "max-total-session-bytes", "", kLimits, "SIZE",
       within(1, 1024.0 * 1024 * kGiB), "what all sessions may take on disk; a guest may have a quarter of it"},
      {&SessionLimits::max_session_buffer_bytes, "max-session-buffer-bytes", "", kLimits, "SIZE",
       within(1, 1024 * kGiB),
       "memory for K and V of sessions on their way to and from the disk; what does not fit is not saved, and computed "
       "again. A guest may have a quarter of it"},
      {&SessionLimits::max_session_write_rate, "max-session-write-rate", "", kLimits, "SIZE", within(1, 1024 * kGiB),
       "K and V of sessions of one user that are written per second, on average over ten seconds; what is above is not "
       "saved, and computed again"},
      {&TextLimits::tokenizer_threads, "tokenizer-threads", "", kLimits, "N", within(1, 64),
       "threads that turn long texts into tokens; one more is kept for texts up to 16 KiB"},
      {&TextLimits::max_rendering_bytes, "max-rendering-bytes", "", kLimits, "SIZE", within(1024.0 * 1024, 64 * kGiB),
       "memory of a chat template while it makes one prompt; as many at once as there are tokenizer-threads, and two"},
      {&TextLimits::embed_truncate, "embed-truncate", "", kLimits, "", kAny,
       "cut texts to embed that have more tokens than the model reads, where the request does not say `truncate`; else "
       "they are refused"},

      {&LogOptions::log_format, "log-format", "", kLogging, "text|json", kAny,
       "one line of text, or of JSON, per event"},
      {&LogOptions::log_level, "log-level", "", kLogging, "trace|debug|info|warn|error|off", kAny,
       "least important event that is logged", kReloads},
      {&LogOptions::log_file, "log-file", "", kLogging, "FILE", kAny,
       "append the log to this file, opened anew by SIGHUP; none: to stderr"},
      {&LogOptions::access_log, "access-log", "", kLogging, "FILE", kAny,
       "append a line for each request that ends, without its text, to this file, opened anew by SIGHUP; log: to the "
       "log, whatever its level; off: no such lines",
       kReloads},
      {&LogOptions::max_access_lines_per_second, "max-access-lines-per-second", "", kLogging, "N", within(1, 1 << 20),
       "lines of --access-log in a second, of refused requests and of others each; more are left out, and counted. A "
       "guest may have a quarter of them",
       kReloads},

      {&LengthOptions::predict, "predict", "-n --n-predict --max-tokens", kRequest, "TOKENS", within(-1, 1 << 24),
       "longest answer; -1: until the model ends or the context is full, of run and chat where nothing is said: as the "
       "server has it. run says it if the context was full before. serve: for requests that name no length",
       kPerRequest},
      {&AnswerOptions::choices, "choices", "--n-choices --num-return-sequences", kRequest, "N", within(1, 64),
       "answers to one prompt, which is computed once; each is drawn by itself (with --temp 0 all are the same). "
       "--json prints {\"choices\": [...]} for more than one",
       kPerRequest},
      {&AnswerOptions::stop, "stop", "-r --reverse-prompt", kRequest, "TEXT", kAny,
       "end the answer before this text; may be repeated", kPerRequest},
      {&AnswerOptions::stop_id, "stop-id", "", kRequest, "ID,...", within(0, 2147483647),
       "end the answer at these tokens", kPerRequest},
      {&AnswerOptions::ignore_eos, "ignore-eos", "", kRequest, "", kAny, "never choose an end-of-answer token",
       kPerRequest},
      {&AnswerOptions::logprobs, "logprobs", "", kRequest, "N", within(-1, 20),
       "with --json, and only there: logarithms of the probabilities of the chosen and the N likeliest tokens; -1: "
       "none",
       kPerRequest},
      {&AnswerOptions::timeout, "timeout", "", kRequest, "TIME", within(0, 24 * kHours),
       "end the answer with what it has after this long, and with exit code 1; refused at once if it is predicted to "
       "be late; 0: never",
       kPerRequest},
      {&AnswerOptions::priority, "priority", "", kRequest, "N", within(-1000, 1000), "lower is served earlier",
       kPerRequest},
      {&AnswerOptions::receipt, "receipt", "", kRequest, "FILE", kAny,
       "write to this file what `troupe verify` needs to prove the answer: ids, parameters, seed, numerics_id and the "
       "model's hash, as JSON",
       kPerRequest},
      {&SessionNameOptions::session, "session", "", kRequest, "NAME", kAny,
       "continue the conversation of this name, or begin it: one that the server keeps; chat has its messages in a "
       "file "
       "of your own, too",
       kPerRequest},
      {&ConversationOptions::recompute, "recompute", "", kRequest, "", kAny,
       "continue the session also if it was computed with other kernels, another KV type or another model of the same "
       "vocabulary and chat template, from its tokens",
       kPerRequest},
      {&ChatFlagOptions::chat, "chat", "", kRequest, "", kAny,
       "the text is a user's message: the model's chat template makes the prompt", kPerRequest},
      {&MessageOptions::system, "system", "-sys --system-prompt", kRequest, "TEXT", kAny,
       "a system message before the others (run: with --chat)", kPerRequest},
      {&MessageOptions::chat_template_kwargs, "chat-template-kwargs", "", kRequest, "JSON", kAny,
       "further variables of the chat template (run: with --chat), as ({\"enable_thinking\": false})", kPerRequest},
      {&MessageOptions::reasoning_budget, "reasoning-budget", "", kRequest, "TOKENS", within(-1, 1 << 24),
       "longest reasoning before an answer: then the marker that ends it comes; 0: none; -1: as long as the model "
       "likes",
       kPerRequest},
      {&RequestOptions::scope, "scope", "", kRequest, "NAME", kAny,
       "who shares the prefix cache: \"public\" all users, another name a part of yours; none: you (load: a new one)",
       kPerRequest},
      {&TokenTextOptions::special, "special", "", kRequest, "", kAny,
       "text of control tokens (\"<s>\") becomes those tokens; run and tokenize: as it does anyway", kPerRequest},
      {&ControlTokenOptions::no_parse_special, "no-parse-special", "", kRequest, "", kAny,
       "text of control tokens stays text, also with --special: for what others wrote", kPerRequest},

      {&SamplingOptions::temperature, kTemperature.option, "--temperature", kSampling, "T", range_of(kTemperature),
       "temperature; 0: always the likeliest token", kPerRequest},
      {&SamplingOptions::seed, "seed", "-s", kSampling, "N", kAny,
       "same seed, same answer; -1: drawn anew each time (load: 0)", kPerRequest},
      {&SamplingOptions::top_k, kTopK.option, "", kSampling, "K", range_of(kTopK),
       "choose among the K likeliest tokens; 0 or -1: all", kPerRequest},
      {&SamplingOptions::top_p, kTopP.option, "", kSampling, "P", range_of(kTopP),
       "choose among the likeliest tokens that together have probability P", kPerRequest},
      {&SamplingOptions::min_p, kMinP.option, "", kSampling, "P", range_of(kMinP),
       "drop tokens less likely than P times the likeliest", kPerRequest},
      {&SamplingOptions::repeat_penalty, kRepeatPenalty.option, "--repetition-penalty", kSampling, "X",
       range_of(kRepeatPenalty), "make repeated tokens less likely by this factor; 1: off", kPerRequest},
      {&SamplingOptions::repeat_last_n, kRepeatLastN.option, "", kSampling, "N", range_of(kRepeatLastN),
       "tokens that --repeat-penalty looks back over; -1: all, 0: none", kPerRequest},
      {&SamplingOptions::presence_penalty, kPresencePenalty.option, "", kSampling, "X", range_of(kPresencePenalty),
       "subtracted from the logit of a token that the answer has", kPerRequest},
      {&SamplingOptions::frequency_penalty, kFrequencyPenalty.option, "", kSampling, "X", range_of(kFrequencyPenalty),
       "subtracted for each time that the answer has a token", kPerRequest},
      {&AnswerOptions::logit_bias, "logit-bias", "-l", kSampling, "ID=BIAS", kAny,
       "add BIAS to the logit of token ID, also written ID+BIAS or ID-BIAS; may be repeated", kPerRequest},

      {&CaseOptions::n_prompt, "n-prompt", "-p", kMeasure, "TOKENS,...", within(0, 1 << 24),
       "prompt lengths whose prefill is measured; 0: none"},
      {&CaseOptions::n_gen, "n-gen", "-n", kMeasure, "TOKENS,...", within(0, 1 << 24),
       "answer lengths whose decoding is measured; 0: none"},
      {&CaseOptions::prompt_gen, "prompt-gen", "-pg", kMeasure, "PP,TG", kAny,
       "also measure a prompt of PP tokens and an answer of TG together; may be repeated"},
      {&CaseOptions::batch_sizes, "batch-sizes", "-b", kMeasure, "N,...", within(1, 4096),
       "sequences decoded at once; of an encoder: texts read at once"},
      {&CaseOptions::n_depth, "n-depth", "-d", kMeasure, "TOKENS,...", within(0, 1 << 24),
       "tokens that are in the cache before the measurement begins"},
      {&CaseOptions::step_tokens, "step-tokens", "-ub --ubatch-size", kMeasure, "TOKENS", within(1, 65536),
       "tokens of a prompt that one step computes, as a server's --max-step-tokens; longer prompts take several steps"},
      {&CaseOptions::repetitions, "repetitions", "-r", kMeasure, "N", within(1, 1000),
       "measured rounds, after one that warms up"},
      {&CaseOptions::overhead, "overhead", "", kMeasure, "", kAny,
       "measure the time between the kernels of two steps instead, through a server's actors, for each of -b"},
      {&ProfileOptions::profile, "profile", "", kMeasure, "", kAny,
       "measure the time of each operation of a step, of its joins and layers: bench prints it behind its table, of a "
       "server `troupe status --profile` shows it, and its log at the end"},
      {&PassageOptions::window, "window", "-c --ctx-size", kMeasure, "TOKENS", within(1, 1 << 24),
       "length of the passages that the text is cut into"},
      {&PassageOptions::stride, "stride", "--ppl-stride", kMeasure, "TOKENS", within(0, 1 << 24),
       "passages begin this far apart, are half of it longer, and that many tokens of each are scored; 0: passages "
       "side by side, each scored behind its middle"},
      {&PassageOptions::chunks, "chunks", "", kMeasure, "N", within(0, 1 << 24), "passages that are measured; 0: all"},
      {&PassageOptions::by_position, "by-position", "", kMeasure, "", kAny,
       "also show how well the tokens are predicted at each part of the window"},
      {&FormatOptions::format, "format", "-o", kMeasure, "md|json", kAny, "a table, or JSON"},

      {&MachineOptions::refresh, "refresh", "", kMeasure, "", kAny, "measure again, whatever is kept"},
      {&MachineOptions::quick, "quick", "", kMeasure, "", kAny,
       "shorter rounds, a smaller buffer, no 4 KiB pages: some three seconds instead of ten"},
      {&MachineOptions::output_format, "output-format", "-o", kMeasure, "text|json", kAny, "tables, or JSON"},

      {&PaceOptions::rate, "rate", "--request-rate", kPace, "R", within(0, 1e6),
       "requests per second that arrive whether others have ended or not (open loop); 0: each client sends its next "
       "request when its last has ended (closed loop)"},
      {&PaceOptions::burstiness, "burstiness", "", kPace, "X", within(0, 1e6),
       "with --rate: shape of the gamma-distributed intervals; 1: Poisson, below: in bursts; 0: constant intervals"},
      {&PaceOptions::clients, "clients", "--max-concurrency", kPace, "N", within(0, 100000),
       "requests at once; 0: 8 in a closed loop, any number in an open one"},
      {&PaceOptions::num_prompts, "num-prompts", "--num-requests", kPace, "N", within(0, 10'000'000),
       "requests of the run; 0: as many as --duration allows, or 100"},
      {&PaceOptions::duration, "duration", "", kPace, "TIME", within(0, 1000 * kHours),
       "send nothing after this; 0: --num-prompts alone ends the run"},
      {&PaceOptions::ramp_up, "ramp-up", "", kPace, "TIME", within(0, 24 * kHours),
       "rise from --ramp-from to the full rate or number of clients in this time"},
      {&PaceOptions::ramp_from, "ramp-from", "--ramp-up-start-rps", kPace, "X", within(0, 1e6),
       "rate or number of clients that --ramp-up begins with"},
      {&PaceOptions::think_time, "think-time", "", kPace, "TIME", within(0, 24 * kHours),
       "closed loop: how long a client waits before its next request"},
      {&PaceOptions::connections, "connections", "", kPace, "N", within(0, 4096),
       "connections that share the requests; 0: one per client, at most 32"},
      {&PaceOptions::max_retries, "max-retries", "--retry", kPace, "N", within(0, 100),
       "send a refused request again, up to N times, after as long as the server says"},
      {&PaceOptions::deadline, "deadline", "", kPace, "TIME", within(0, 24 * kHours),
       "of each request: the server refuses what it predicts to be late, and ends what is; 0: none"},
      {&PaceOptions::patience, "patience", "", kPace, "TIME", within(1, 24 * kHours),
       "give up when nothing comes from the server for this long"},

      {&PromptOptions::prompt_len, "prompt-len", "--random-input-len --input-len", kPrompts, "LENGTHS", kAny,
       "tokens of a prompt after its shared prefix: 128, 32..256, normal:MEAN,DEVIATION or lognormal:MEAN,DEVIATION, "
       "the last two cut to the model's context"},
      {&PromptOptions::output_len, "output-len", "-n --random-output-len", kPrompts, "LENGTHS", kAny,
       "tokens of an answer, in the same form; the model does not end it earlier"},
      {&PromptOptions::prefix_len, "prefix-len", "--random-prefix-len", kPrompts, "TOKENS", within(0, 1 << 24),
       "length of the shared prefixes; 0: there are none"},
      {&PromptOptions::num_prefixes, "num-prefixes", "", kPrompts, "N", within(1, 1 << 20),
       "different shared prefixes"},
      {&PromptOptions::prefix_share, "prefix-share", "", kPrompts, "SHARE", within(0, 1),
       "share of the requests that begin with a shared prefix"},
      {&PromptOptions::warm, "warm", "", kPrompts, "", kAny,
       "run every shared prefix once before the clock starts; else the run begins with nothing cached"},
      {&PromptOptions::trace, "trace", "", kPrompts, "FILE", kAny,
       "send the requests of this JSONL file, at its times if --clients is not given (docs/load.md)"},
      {&PromptOptions::trace_out, "trace-out", "", kPrompts, "FILE", kAny, "write what was sent as such a file"},
      {&PromptOptions::openai, "openai", "", kPrompts, "URL", kAny,
       "drive an OpenAI-compatible server instead: http://HOST:PORT or http+unix:///PATH"},
      {&PromptOptions::api_key, "api-key", "", kPrompts, "KEY", kAny, "for --openai"},

      {&FaultOptions::fault_cancel, "fault-cancel", "", kFaults, "SHARE", within(0, 1),
       "cancel at a random token, or before the first"},
      {&FaultOptions::fault_disconnect, "fault-disconnect", "", kFaults, "SHARE", within(0, 1),
       "close the connection at a random moment"},
      {&FaultOptions::fault_slow_reader, "fault-slow-reader", "", kFaults, "SHARE", within(0, 1),
       "stop reading, or granting credit, for --fault-pause"},
      {&FaultOptions::fault_garbage, "fault-garbage", "", kFaults, "SHARE", within(0, 1),
       "send bytes that are not the protocol on a connection beside the request"},
      {&FaultOptions::fault_pause, "fault-pause", "", kFaults, "TIME", within(0, 24 * kHours),
       "how long a slow reader stops"},

      {&LoadTenantOptions::load_tenants, "tenant", "", kTenants, "NAME[:KEY=VALUE,...]", kAny,
       "play this tenant, beside those of further --tenant. Its own keys: uid=NAME or NUMBER (its connections are of "
       "that "
       "user; for root), weight=W (of its due share; 1), start=TIME (later than the others), priority=N, embed, "
       "tokenize "
       "(ask for vectors, or token ids). The other keys are flags of this page without their dashes (clients, rate, "
       "num-prompts, prompt-len, output-len, prefix-len, seed, goodput, max-retries, ...); what it does not name is as "
       "the flags say. May be repeated",
       kNeedsRestart, kFlagOnly},
      {&LoadTenantOptions::load_tenants_file, "tenants", "", kTenants, "FILE", kAny,
       "further tenants, one on each line as behind --tenant; empty lines, and lines that begin with #, are skipped",
       kNeedsRestart, kFlagOnly},
      {&LoadTenantOptions::compare_alone, "compare-alone", "", kTenants, "NAME,...", kAny,
       "before the run, run these tenants alone, one after the other (all: each of them), and report both; may be "
       "repeated",
       kNeedsRestart, kFlagOnly},

      {&KeyOptions::key_tenant, "key-tenant", "--tenant", kTenants, "NAME", kAny,
       "add: whose key it is, the name of a [[tenant]] rule or a uid; none: a tenant of its own, key:NAME",
       kNeedsRestart, kFlagOnly},
      {&KeyOptions::expires, "expires", "", kTenants, "TIME", within(0, 36'500 * 24 * kHours),
       "add: how long the key is valid, such as 30d; 0: until it is revoked", kNeedsRestart, kFlagOnly},
      {&KeyOptions::quota, "quota", "", kTenants, "LIMIT=N,...", kAny,
       "add: a limit of the tenant that the key is by itself, as in a [[tenant]] rule (max-running, max-queued, "
       "max-prompt-tokens-per-minute, max-answer-tokens-per-minute, max-context, max-kv-blocks, max-choices, weight); "
       "may be repeated",
       kNeedsRestart, kFlagOnly},

      {&GoalOptions::verify, "verify", "", kGoals, "", kAny,
       "afterwards run each request alone, and compare every token"},
      {&GoalOptions::goodput, "goodput", "", kGoals, "KEY:MS", kAny,
       "count the requests within limits: ttft:500 tpot:50 e2el:5000, in milliseconds"},
      {&GoalOptions::require_goodput, "require-goodput", "", kGoals, "SHARE", within(0, 1),
       "least share of the undisturbed requests that must be within the limits of --goodput"},
      {&GoalOptions::max_failed, "max-failed", "", kGoals, "N", within(-1, 1e9),
       "requests that may break on the server's side or lose their connection; -1: any number"},
      {&GoalOptions::max_refused, "max-refused", "", kGoals, "N", within(-1, 1e9),
       "requests that may be refused; -1: any number"},
      {&ReportOptions::report, "report", "-o --save-result", kInputOutput, "FILE.json", kAny,
       "write all figures and one row per request as JSON, with the keys of `vllm bench serve`"},
      {&ReportOptions::html, "html", "", kInputOutput, "FILE.html", kAny, "write a page with curves and a timeline"},

      {&LogitsOptions::tokens, "tokens", "", kInputOutput, "IDS.json", kAny, "the token ids to evaluate: a JSON array"},
      {&LogitsOptions::output, "output", "-o", kInputOutput, "LOGITS.f32", kAny,
       "logits of every position: raw little-endian float32 [tokens, vocabulary]"},
      {&LogitsOptions::greedy, "greedy", "", kInputOutput, "N", within(0, 1 << 24),
       "print the N likeliest continuation tokens, one after another, as a JSON array"},
      {&LogitsOptions::chunk, "chunk", "", kInputOutput, "TOKENS", within(1, 1 << 24),
       "tokens computed in one step; the logits are the same bits for any number"},
      {&LogitsOptions::compare, "compare", "", kInputOutput, "FILE", kAny,
       "compare with the logits of this model over the same tokens; none: with the same one, if another --compare-... "
       "asks for it"},
      {&LogitsOptions::compare_kv_type, "compare-kv-type", "", kInputOutput, "same|f16|f32|int8|q8_0", kAny,
       "compare with a run that has this KV cache"},
      {&LogitsOptions::compare_kernels, "compare-kernels", "", kInputOutput, "VARIANT", kAny,
       "compare with a run of this kernel variant; same: that of --kernels"},
      {&LogitsOptions::compare_ternary, "compare-ternary", "", kInputOutput, "same|auto|multiply|lookup|trits", kAny,
       "compare with a run that multiplies ternary weights like this"},
      {&ToolFileOptions::tools, "tools", "", kInputOutput, "FILE.json", kAny,
       "the tools of the request, a list in the form of OpenAI's Chat Completions (run, chat: the model is told of "
       "them, and troupe runs none; run: the text is a user's message, as with --chat)",
       kNeedsRestart, kFlagOnly},
      {&ToolChoiceOptions::tool_choice, "tool-choice", "", kRequest, "CHOICE", kAny,
       "with --tools: auto, the model decides whether it calls one; none, it is not told of them; required, the answer "
       "is one or more calls; the name of a tool, of that; none given: auto",
       kPerRequest, kFlagOnly},
      {&FormOptions::json_schema, "json-schema", "-j", kRequest, "JSON", kAny,
       "the answer is JSON that meets this JSON Schema, also where -n ends it (structured.md)", kPerRequest, kFlagOnly},
      {&FormOptions::json_schema_file, "json-schema-file", "-jf", kRequest, "FILE", kAny,
       "the same of the schema in a file", kPerRequest, kFlagOnly},
      {&FormOptions::json_object, "json-object", "", kRequest, "", kAny, "the answer is a JSON object", kPerRequest,
       kFlagOnly},
      {&FormOptions::regex, "regex", "", kRequest, "PATTERN", kAny,
       "the whole answer matches this pattern, a regular expression of ECMA-262", kPerRequest, kFlagOnly},
      {&FormOptions::choice, "choice", "", kRequest, "TEXT", kAny,
       "the answer is this text; given several times, one of them", kPerRequest, kFlagOnly},
      {&FormOptions::grammar, "grammar", "", kRequest, "GBNF", kAny,
       "the whole answer is a text of this grammar's rule root, in llama.cpp's notation (structured.md)", kPerRequest,
       kFlagOnly},
      {&FormOptions::grammar_file, "grammar-file", "", kRequest, "FILE", kAny, "the same of the grammar in a file",
       kPerRequest, kFlagOnly},
      {&DecodeOptions::decode, "decode", "", kInputOutput, "", kAny, "turn token ids into text instead"},
      {&VectorOptions::pooling, "pooling", "", kRequest, "NAME", kAny,
       "what becomes of the tokens' vectors: mean, cls (the first one) or last; none: the model's own", kPerRequest},
      {&VectorOptions::no_normalise, "no-normalise", "--no-normalize", kRequest, "", kAny,
       "leave the vectors as long as they are, instead of making their length 1", kPerRequest},
      {&VectorOptions::truncate, "truncate", "", kRequest, "", kAny,
       "cut texts that have more tokens than the model reads at their end, and say on stderr how much was cut; else "
       "they are refused, unless the server runs with --embed-truncate",
       kPerRequest},
      {&EndsOptions::no_bos, "no-bos", "", kInputOutput, "", kAny,
       "do not add the tokens that the vocabulary puts at the beginning and the end"},
      {&TextOptions::file, "file", "-f", kInputOutput, "FILE", kAny,
       "read the text from this file (embed: a text on each line); -: from stdin"},
      {&TokenTextOptions::stdin_timeout, "stdin-timeout", "", kInputOutput, "TIME", within(0, 24 * kHours),
       "beside arguments or --file: how long a pipe on stdin may stay open without a byte before that is an error; 0: "
       "stdin is "
       "not read"},
      {&TokenTextOptions::ids, "ids", "", kInputOutput, "", kAny,
       "token ids instead of text: as the prompt (run), as the texts (embed), as the whole output (tokenize)"},
      {&JsonOptions::json, "json", "", kInputOutput, "", kAny, "print JSON"},
      {&ShownOptions::metadata, "metadata", "", kInputOutput, "", kAny,
       "also show the file's metadata, long values cut"},
      {&ShownOptions::tensors, "tensors", "", kInputOutput, "", kAny,
       "also show the file's tensors with type, shape and size"},
      {&ShownOptions::show_chat_template, "show-chat-template", "--chat-template", kInputOutput, "", kAny,
       "print the file's chat templates alone, as they are"},
      {&AnchorOptions::anchors, "anchors", "", kInputOutput, "", kAny, "inspect: print all anchors"},
      {&DryRunOptions::dry_run, "dry-run", "", kInputOutput, "", kAny,
       "session repair, restore, prune: say what would be done, and do nothing"},
      {&StateOptions::state, "state", "", kInputOutput, "DIR", kAny,
       "the directory in which the server keeps usage.db, sessions and keys (the machine's service: /var/lib/troupe); "
       "none: $STATE_DIRECTORY, $XDG_STATE_HOME/troupe or ~/.local/state/troupe. --usage-db, --sessions-dir and "
       "--keys-file name others, as for serve",
       kNeedsRestart, kFlagOnly},
      {&StateOptions::keys, "keys", "", kInputOutput, "", kAny,
       "also the file of keys: whoever has a copy can try to guess them", kNeedsRestart, kFlagOnly},
      {&ReplaceOptions::replace, "replace", "--force", kInputOutput, "", kAny,
       "also where there is state already: it is kept beside the restored one as NAME.before-restore", kNeedsRestart,
       kFlagOnly},
      {&RawOptions::raw, "raw", "", kInputOutput, "", kAny,
       "print the text's control characters on a terminal too, which obeys them, instead of showing them"},
      {&StatusFormatOptions::prometheus, "prometheus", "", kInputOutput, "", kAny, "print Prometheus text"},
      {&StatusFormatOptions::show_profile, "show-profile", "--profile", kInputOutput, "", kAny,
       "show where the time of the server's steps went, by operation, join and layer (of a server with --profile)"},
      {&AnywayOptions::anyway, "anyway", "", kInputOutput, "", kAny,
       "compare also with what other kernels or another KV type give, which may round differently"},
      {&PeriodOptions::since, "since", "", kInputOutput, "TIME", kAny,
       "only what has ended since then: \"24h\", \"7d\", \"2026-11-01\", \"2026-11-01T08:00\" (local time); whole "
       "hours "
       "count; none: all that is kept"},
      {&PeriodOptions::by, "by", "", kInputOutput, "total|day|hour|group", kAny,
       "what a line sums up: a tenant, a tenant's day or hour (of UTC), or a Unix group's users; tenants that are no "
       "users stay apart"},
      {&PeriodOptions::usage_group, "usage-group", "--group", kInputOutput, "NAME,...", kAny,
       "with --by group: a user counts for the first of these groups that it is in; none: for its primary group"},
      {&ScreenOptions::interval, "interval", "", kInputOutput, "TIME", within(50, kHours),
       "between two looks at the server"},
      {&ScreenOptions::once, "once", "", kInputOutput, "", kAny, "print one screen and stop"},
      {&VerboseOptions::verbose, "verbose", "-v", kInputOutput, "", kAny,
       "run: report tokens per second, time to the first token, cached tokens and the receipt on stderr; status: list "
       "every metric"},

      {&StoreDirOptions::store, "store", "", kStore, "DIR", kAny,
       "where models are that `troupe pull` has fetched; none: $XDG_DATA_HOME/troupe/models or "
       "~/.local/share/troupe/models (to find a model also /var/lib/troupe/models)"},
      {&MachineStoreOptions::system_store, "system-store", "--system", kStore, "", kAny,
       "the machine's store, /var/lib/troupe/models", kNeedsRestart, kFlagOnly},
      {&PullOptions::store_quota, "store-quota", "", kStore, "SIZE", within(0, 1024.0 * 1024.0 * kGiB),
       "most that the store may take on the disk; what does not fit is not begun; 0: any size"},
      {&PullOptions::pull_name, "pull-name", "--name", kStore, "NAME", kAny,
       "the name under which the model is kept; none: after where it comes from", kNeedsRestart, kFlagOnly},
      {&PullOptions::ask, "ask", "", kStore, "", kAny, "say what would be fetched, and ask before it is", kNeedsRestart,
       kFlagOnly},
      {&PullOptions::pull_connections, "pull-connections", "--connections", kNetwork, "N", within(1, 16),
       "parts of a file that are fetched at once"},
      {&PullOptions::pull_timeout, "pull-timeout", "--timeout", kNetwork, "TIME", within(1000, kHours),
       "connect again when no byte has come for this long"},
      {&PullOptions::pull_retries, "pull-retries", "--retries", kNetwork, "N", within(0, 1000),
       "give up after this many failures with nothing between them; what arrived is kept"},
      {&PullOptions::token_file, "token-file", "", kNetwork, "FILE", kAny,
       "a file with the hub's token, which nobody else may read (0600); none: $HF_TOKEN, HF_TOKEN_PATH, "
       "$CREDENTIALS_DIRECTORY/hf-token, ~/.cache/huggingface/token"},
      {&PullOptions::ca_file, "ca-file", "", kNetwork, "FILE", kAny,
       "certificates of authorities (PEM) that a server's must be signed by; none: $SSL_CERT_FILE, else the system's"},
      {&PullOptions::allow_http, "allow-http", "", kNetwork, "", kAny,
       "also fetch from servers without TLS, where anyone on the way reads and changes what comes", kNeedsRestart,
       kFlagOnly},
      {&PullOptions::quiet, "quiet", "-q", kInputOutput, "", kAny, "show no progress", kNeedsRestart, kFlagOnly},

      {&ConfigOptions::config, "config", "", kConfiguration, "FILE", kAny,
       "configuration file; none: $XDG_CONFIG_HOME/troupe/troupe.toml, else /etc/troupe/troupe.toml"},
      {&ConfigOptions::print_config, "print-config", "", kConfiguration, "", kAny,
       "print the configuration in effect, as a configuration file, and stop", kNeedsRestart, kFlagOnly},
      {&ServerOptions::print_limits, "print-limits", "", kConfiguration, "", kAny,
       "print how much memory each limit allows, and all together, and stop", kNeedsRestart, kFlagOnly},
      {&ServerOptions::check, "check", "", kConfiguration, "", kAny,
       "find what a start or a reload would refuse, without loading weights, and stop: 78 with file, line and reason "
       "if "
       "there is anything",
       kNeedsRestart, kFlagOnly},
      {&HelpOptions::help, "help", "-h", kConfiguration, "", kAny, "print this text and stop", kNeedsRestart,
       kFlagOnly},
  };
  return table;
}

// The name of a row changes together with a line here.
FormerNames former_names() { return {}; }

}  // namespace troupe::config
