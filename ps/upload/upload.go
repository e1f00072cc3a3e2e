package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Store is a folder of a store.
type Store interface {
	fsx.FS
	// Close ends what is under way.
	Close() error
}

// Options describe what is uploaded where.
type Options struct {
	// Dir is the folder of a job's snapshots, on this machine.
	Dir string
	// URL is what the store is called. Open opens it, and may be called again after an error.
	URL  string
	Open func(context.Context) (Store, error)
	// Owner is the id of the job's dir.
	Owner string
	// Retention says which snapshots stay in the store.
	Retention snapshot.Retention
	// Retry is how long is waited after a failure, and doubled after each further one up to RetryMost; default 1 s and 5 min.
	Retry, RetryMost time.Duration
	// Logger gets what is uploaded and what fails; nil discards. Hooks observes; nil: nothing does.
	Logger *slog.Logger
	Hooks  *ps.Hooks
}

// Uploader copies snapshots to a store in the background: all that the store's retention keeps, the newest first. What fails is tried again for as long as it
// runs. It holds one megabyte of a file at a time beside what the store's writer holds, and owns one goroutine from Start to Close. Methods
// may overlap.
type Uploader struct {
	o     Options
	run   context.Context // ends with Close
	stop  context.CancelCauseFunc
	done  sync.WaitGroup
	wake  chan struct{}
	pause func(context.Context) func()
	// store is open unless nil, impossible are snapshots that cannot be uploaded whatever is tried; both are the goroutine's.
	store      Store
	unhook     func() bool
	impossible map[string]bool
	// claimed is set once the store is this folder's: from then on its owner changes only by another run's hand.
	claimed bool
	// ages are those of the snapshots in the folder and the store, since the run began.
	ages snapshot.Ages

	mu struct {
		sync.Mutex
		asked, settled uint64        // how often snapshots were taken, and up to which all are uploaded
		changed        chan struct{} // closed when settled or err change
		err            error         // of the last try
		holds          []uint64
		logged         time.Time
		loggedText     string
	}
}

// New makes an uploader that does nothing yet.
func New(o Options) *Uploader {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	if o.RetryMost <= 0 {
		o.RetryMost = 5 * time.Minute
	}
	u := &Uploader{o: o, wake: make(chan struct{}, 1), impossible: map[string]bool{}}
	u.mu.asked, u.mu.changed = 1, make(chan struct{}) // what there is counts as taken
	return u
}

// Restore makes the folder and the store fit each other before a run begins: a folder without snapshots gets the newest of the store, which it
// returns; nil: there was nothing to bring back. after is the highest number in the store. With fresh the run is to start over, and the store must have no snapshots. The store is the
// folder's from then on, and who was its owner uploads no more. A store that cannot be reached is an error only where the folder has no
// snapshot. Errors: [ErrOwner], [ErrAhead], [ErrNotEmpty], those of [Fetch].
func (u *Uploader) Restore(ctx context.Context, fresh bool) (restored *snapshot.Info, after uint64, err error) {
	local, err := snapshot.List(u.o.Dir)
	if err != nil {
		return nil, 0, fmt.Errorf("upload: %w", err)
	}
	if fresh {
		local = nil
	}
	restored, after, err = u.restore(ctx, local, fresh)
	if err != nil && len(local) > 0 && ctx.Err() == nil && !failure.Lasting(err) {
		u.o.Logger.WarnContext(ctx, "snapshots cannot be uploaded for now; it is tried again while training", "url", u.o.URL, "err", err)
		return nil, 0, nil
	}
	return restored, after, err
}

func (u *Uploader) restore(ctx context.Context, local []snapshot.Entry, fresh bool) (restored *snapshot.Info, after uint64, err error) {
	store, err := u.o.Open(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("upload: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	remote, err := snapshot.ListIn(store, ".")
	if err != nil {
		return nil, 0, fmt.Errorf("upload: %s: %w", u.o.URL, err)
	}
	u.ages.See(slices.Concat(local, remote))
	if len(remote) > 0 {
		after = remote[0].ID
	}
	switch {
	case fresh && len(remote) > 0:
		return nil, 0, fmt.Errorf("upload: %s: %w, up to number %d; name another place in snapshot.upload for what starts over: %w", u.o.URL, ErrNotEmpty, after, ErrOwner)
	case len(local) > 0:
		if err := u.claim(ctx, store, local, remote); err != nil {
			return nil, 0, err
		}
		if after > local[0].ID {
			return nil, 0, fmt.Errorf("upload: %w: %s has them up to number %d, %s up to %d; to continue from the store put the folder aside (and that of ps.wal), to continue from the folder name another place in snapshot.upload",
				ErrAhead, u.o.URL, after, u.o.Dir, local[0].ID)
		}
		return nil, after, nil
	case len(remote) > 0:
		if restored, err = Fetch(ctx, FetchOptions{From: store, URL: u.o.URL, To: u.o.Dir, Logger: u.o.Logger}); err != nil {
			return nil, 0, err
		}
	}
	return restored, after, u.own(ctx, store)
}

// ownerName is the file that names who uploads.
const ownerName = "owner"

// owner returns the id of the dir that uploads to the store, "": none.
func owner(ctx context.Context, store fsx.FS) (string, error) {
	b, err := fsx.ReadFile(ctx, store, ownerName, 256)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// own makes the store this folder's.
func (u *Uploader) own(ctx context.Context, store fsx.FS) error {
	now, err := owner(ctx, store)
	if err == nil && now != u.o.Owner {
		err = fsx.WriteFile(ctx, store, ownerName, []byte(u.o.Owner+"\n"))
	}
	if err != nil {
		return fmt.Errorf("upload: %s: %w", u.o.URL, err)
	}
	u.claimed = true
	return nil
}

// claim makes the store this folder's if it is nobody's, or if the folder has the store's newest snapshot: then it was fetched from there. Later
// it only looks whether it still is.
func (u *Uploader) claim(ctx context.Context, store fsx.FS, local, remote []snapshot.Entry) error {
	now, err := owner(ctx, store)
	if err != nil {
		return fmt.Errorf("upload: %s: %w", u.o.URL, err)
	}
	if now == u.o.Owner {
		u.claimed = true
		return nil
	}
	if u.claimed && now != "" {
		return fmt.Errorf("upload: %s: %w (%s), which began to upload there after this one (%s); end one of the two", u.o.URL, ErrOwner, now, u.o.Owner)
	}
	i := slices.IndexFunc(remote, func(e snapshot.Entry) bool { return e.Err == nil })
	if len(remote) > 0 && (i < 0 || find(local, remote[i].Info) == nil) {
		return fmt.Errorf("upload: %s: %w (%s), up to number %d; this one is %s: name another place in snapshot.upload, or, to continue from there, a dir without snapshots",
			u.o.URL, ErrOwner, now, remote[0].ID, u.o.Owner)
	}
	return u.own(ctx, store)
}

// Start begins to upload. pause, if not nil, makes a function that is called for each megabyte and may wait, as [snapshot.PartOptions].Pause.
func (u *Uploader) Start(ctx context.Context, pause func(context.Context) func()) {
	u.run, u.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	u.pause = pause
	u.done.Go(u.loop)
}

// Taken says that there is a new snapshot, or another form of one. It waits for nothing.
func (u *Uploader) Taken() {
	u.mu.Lock()
	u.mu.asked++
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// Holds returns the numbers of the snapshots that are being read, which must stay meanwhile.
func (u *Uploader) Holds() []uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.mu.holds)
}

// Wait returns when all that was taken until now is in the store, or the context has ended: then with the error of the last try too.
func (u *Uploader) Wait(ctx context.Context) error {
	u.mu.Lock()
	asked := u.mu.asked
	u.mu.Unlock()
	for {
		u.mu.Lock()
		settled, changed, err := u.mu.settled, u.mu.changed, u.mu.err
		u.mu.Unlock()
		if settled >= asked {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-u.run.Done():
			return errors.Join(context.Cause(u.run), err)
		}
	}
}

// Close ends what is under way and waits for that. A snapshot that is not complete in the store is continued by the next one.
func (u *Uploader) Close() {
	if u.stop != nil {
		u.stop(ps.ErrClosed)
		u.done.Wait()
	}
}

// loop uploads until the uploader is closed.
func (u *Uploader) loop() {
	defer func() { _ = u.drop() }()
	wait := u.o.Retry
	for u.run.Err() == nil {
		u.mu.Lock()
		asked := u.mu.asked
		u.mu.Unlock()
		err := u.pass()
		if u.run.Err() != nil {
			return
		}
		u.settle(asked, err)
		if err == nil {
			wait = u.o.Retry
			select {
			case <-u.wake:
			case <-u.run.Done():
			}
			continue
		}
		err = errors.Join(err, u.drop())
		u.complain(err, wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-u.run.Done():
		}
		timer.Stop()
		wait = min(2*wait, u.o.RetryMost)
	}
}

// settle notes what a pass came to.
func (u *Uploader) settle(asked uint64, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.err = err; err == nil {
		u.mu.settled, u.mu.loggedText = asked, ""
	}
	close(u.mu.changed)
	u.mu.changed = make(chan struct{})
}

// sayAgain is how long a failure that continues is not logged again.
const sayAgain = time.Minute

// complain logs a failure: the first of a row, one of another kind, and then one a minute.
func (u *Uploader) complain(err error, wait time.Duration) {
	u.mu.Lock()
	text := err.Error()
	say := text != u.mu.loggedText || time.Since(u.mu.logged) >= sayAgain
	if say {
		u.mu.logged, u.mu.loggedText = time.Now(), text
	}
	u.mu.Unlock()
	if say {
		u.o.Logger.Error("snapshots not uploaded; training continues, and they are only on this machine's disk until it is tried again with success",
			"url", u.o.URL, "err", err, "again_in", wait.String())
	}
}

// drop closes the store.
func (u *Uploader) drop() error {
	if u.store == nil {
		return nil
	}
	store := u.store
	u.store = nil
	u.unhook()
	return store.Close()
}

// pass uploads all that is to be there, and removes what need not.
func (u *Uploader) pass() error {
	if u.store == nil {
		store, err := u.o.Open(u.run)
		if err != nil {
			return fmt.Errorf("upload: %w", err)
		}
		// Who closes the uploader waits for no answer of the store.
		u.store, u.unhook = store, context.AfterFunc(u.run, func() { _ = store.Close() })
	}
	for {
		more, err := u.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	// Sizes are compared, not bytes: each file was compared with its checksum on its way there, and reading all back costs what a store asks for that.
	if gone, err := snapshot.Prune(u.run, u.store, ".", u.o.Retention, snapshot.PruneOptions{Ages: &u.ages}); err != nil {
		return fmt.Errorf("upload: removing old snapshots of %s: %w", u.o.URL, err)
	} else if len(gone) > 0 {
		u.o.Logger.Debug("old snapshots of the store removed", "url", u.o.URL, "snapshots", gone)
	}
	if _, err := snapshot.Clean(u.store, "."); err != nil {
		return fmt.Errorf("upload: removing unfinished snapshots of %s: %w", u.o.URL, err)
	}
	return nil
}

// next uploads the first snapshot that is missing, and reports whether there was one. Before it changes anything it looks whose the store is.
func (u *Uploader) next() (more bool, err error) {
	local, err := snapshot.List(u.o.Dir)
	if err != nil {
		return false, fmt.Errorf("upload: %w", err)
	}
	remote, err := snapshot.ListIn(u.store, ".")
	if err != nil {
		return false, fmt.Errorf("upload: %s: %w", u.o.URL, err)
	}
	if err := u.claim(u.run, u.store, local, remote); err != nil {
		return false, err
	}
	// What is damaged, or was found to be so, does not count: the one before is wanted in its place.
	local = slices.DeleteFunc(local, func(e snapshot.Entry) bool { return e.Err != nil || u.impossible[cut(e.Info)] })
	for _, e := range u.wanted(local, remote) {
		chain, err := snapshot.Chain(nil, e.Info)
		if err != nil {
			if !u.stale(e.Info) {
				u.giveUp(e.Info, err)
			}
			return true, nil
		}
		for _, info := range slices.Backward(chain) { // what is added to comes first
			if there := find(remote, info); there != nil && there.Err == nil && (there.Info.Checksum == info.Checksum || there.Info.Base == nil) {
				continue
			}
			if u.impossible[cut(info)] { // then what adds to it is too
				u.impossible[cut(e.Info)] = true
				return true, nil
			}
			err := u.upload(info, chain)
			switch {
			case err == nil:
				return true, nil
			case errors.Is(err, snapshot.ErrCorrupt) && u.stale(info):
				return true, nil // compacted or removed meanwhile
			case errors.Is(err, snapshot.ErrCorrupt), errors.Is(err, snapshot.ErrTaken):
				u.giveUp(info, err)
				return true, nil
			default:
				return false, err
			}
		}
	}
	if len(remote) > 0 {
		if i := slices.IndexFunc(remote, func(e snapshot.Entry) bool { return e.Err == nil }); i >= 0 {
			u.o.Hooks.SnapshotUploaded(remote[i].ID, remote[i].Info.Created)
		}
	}
	return false, nil
}

// wanted returns the snapshots of the folder that are to be in the store, the newest first.
func (u *Uploader) wanted(local, remote []snapshot.Entry) []snapshot.Entry {
	all := slices.Clone(local)
	for _, e := range remote {
		if !slices.ContainsFunc(local, func(l snapshot.Entry) bool { return l.ID == e.ID }) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b snapshot.Entry) int {
		if a.ID > b.ID {
			return -1
		}
		return 1
	})
	var out []snapshot.Entry
	for i, why := range u.o.Retention.Kept(all, &u.ages) {
		if why != "" && all[i].Err == nil && find(local, all[i].Info) != nil {
			out = append(out, all[i])
		}
	}
	return out
}

// cut names a snapshot, whatever form it has.
func cut(info *snapshot.Info) string { return fmt.Sprint(info.ID, " ", info.Created.UnixNano()) }

// stale reports whether a snapshot of the folder is not what it was when it was listed.
func (u *Uploader) stale(info *snapshot.Info) bool {
	now, err := snapshot.ReadInfo(info.Path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return now.Checksum != info.Checksum
}

// giveUp notes a snapshot that is not tried again.
func (u *Uploader) giveUp(info *snapshot.Info, err error) {
	if u.impossible[cut(info)] {
		return
	}
	u.impossible[cut(info)] = true
	u.o.Hooks.UploadDone(failure.Of(err).Label(), 0, 0)
	u.o.Logger.Error("a snapshot cannot be uploaded; another one is tried", "url", u.o.URL, "snapshot", info.Path, "err", err)
}

// upload copies one snapshot of a chain, whose bases are there.
func (u *Uploader) upload(info *snapshot.Info, chain []*snapshot.Info) error {
	var ids []uint64
	for _, c := range chain {
		ids = append(ids, c.ID)
	}
	u.hold(ids)
	defer u.hold(nil)
	start, bytes := time.Now(), int64(0)
	o := snapshot.CopyOptions{To: u.store, Dir: ".", Copied: func(n int64) { bytes += n }}
	if u.pause != nil {
		o.Pause = u.pause(u.run)
	}
	err := snapshot.Copy(u.run, info, o)
	took := time.Since(start)
	if u.run.Err() != nil {
		return context.Cause(u.run)
	}
	if err != nil {
		if !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrTaken) { // those are counted where they are given up
			u.o.Hooks.UploadDone(failure.Of(err).Label(), took, bytes)
		}
		return fmt.Errorf("upload: %s to %s: %w", info.Path, u.o.URL, err)
	}
	u.o.Hooks.UploadDone("ok", took, bytes)
	u.o.Logger.Info("snapshot uploaded", "snapshot", info.Path, "url", u.o.URL, "bytes", bytes, "duration", took)
	return nil
}

func (u *Uploader) hold(ids []uint64) {
	u.mu.Lock()
	u.mu.holds = ids
	u.mu.Unlock()
}
