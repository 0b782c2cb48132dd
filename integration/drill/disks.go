package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// emptyDirectory removes all that is in a directory, which may be a mount.
func emptyDirectory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// recoveryPoints are the offsets below which a broker's logs are on disk for
// sure, by directory name.
func recoveryPoints(data string) (map[string]int64, error) {
	raw, err := os.ReadFile(filepath.Join(data, "recovery-point-offset-checkpoint"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	points := map[string]int64{}
	for _, line := range strings.Split(string(raw), "\n") {
		if f := strings.Fields(line); len(f) == 3 {
			offset, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			points[f[0]+"-"+f[1]] = offset
		}
	}
	return points, err
}

// tails cuts the end of the last segment of every log of the topic at a byte that
// luck picks: not before the recovery point, or (deep) anywhere. It says how many
// bytes went.
func (r *run) tails(m *member, deep bool) (bytes int64, err error) {
	points, err := recoveryPoints(m.data())
	if err != nil {
		return 0, err
	}
	for p := range r.l.h.partitions {
		name := fmt.Sprintf("%s-%d", r.l.topic, p)
		segments, err := filepath.Glob(filepath.Join(m.data(), name, "*.log"))
		if err != nil || len(segments) == 0 {
			return 0, fmt.Errorf("%s of %s has no segments (%v)", name, m, err)
		}
		last := slices.Max(segments)
		raw, err := os.ReadFile(last)
		if err != nil {
			return 0, err
		}
		batches, from, end := batchesIn(raw), int64(0), int64(0)
		for _, b := range batches {
			end = b.position + b.size
			if b.last < points[name] && !deep {
				from = end
			}
		}
		at := from + r.rng.Int64N(end-from+1)
		bytes += end - at
		if err := os.Truncate(last, at); err != nil {
			return 0, err
		}
	}
	// The power was lost, so the system was started anew.
	return bytes, os.RemoveAll(filepath.Join(m.data(), ".kbroker.boot"))
}

func tailCut(r *run) error { return r.cutTails(false) }
func deepCut(r *run) error { return r.cutTails(true) }

func (r *run) cutTails(deep bool) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	atOnce := r.rng.IntN(2) == 0
	r.say("kill -9 of %s", r.describe(m))
	m.proc.kill()
	bytes, err := r.tails(m, deep)
	if err != nil {
		return err
	}
	r.say("its logs are cut by %d bytes", bytes)
	if !atOnce {
		if err := r.goesOn(); err != nil {
			return err
		}
	}
	return r.launch(m)
}

// noticed waits until a broker whose only disk is broken has ended; the others go
// on.
func (r *run) noticed(m *member) error {
	if err := r.goesOn(); err != nil {
		return err
	}
	if !m.proc.await(30 * time.Second) {
		return fmt.Errorf("%s runs on with a broken disk", m)
	}
	r.say("it ended with %s", m.proc.exit())
	return r.goesOn()
}

// diskFull moves a broker onto a small file system, fills that, and moves back.
func diskFull(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	if err := r.terminate(m); err != nil {
		return err
	}
	aside := m.data() + "-aside"
	var size int64
	err = filepath.WalkDir(m.data(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, e := d.Info()
			if e == nil {
				size += info.Size() + 8192
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(m.data(), aside); err != nil {
		return err
	}
	if err := os.Mkdir(m.data(), 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", m.data(), "tmpfs", 0, fmt.Sprintf("size=%d", size+32<<20)); err != nil {
		return err
	}
	if err := command("cp", "-a", aside+"/.", m.data()); err != nil {
		return err
	}
	elect := func() error { return r.c.electPreferred(r.ctx) } // so that it leads again
	if err := each(func() error { return r.launch(m) }, r.healed, elect, r.healed, r.goesOn); err != nil {
		return err
	}
	r.say("the disk of %s fills up", r.describe(m))
	filler := filepath.Join(m.data(), "filler")
	if err := fill(filler); err != nil {
		return err
	}
	if err := r.noticed(m); err != nil {
		return err
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	r.say("there is room again")
	if err := each(func() error { return r.launch(m) }, r.healed, func() error { return r.terminate(m) }); err != nil {
		return err
	}
	if err := emptyDirectory(aside); err != nil {
		return err
	}
	if err := command("cp", "-a", m.data()+"/.", aside); err != nil {
		return err
	}
	if err := syscall.Unmount(m.data(), 0); err != nil {
		return fmt.Errorf("unmount %s: %w", m.data(), err)
	}
	if err := os.Remove(m.data()); err != nil {
		return err
	}
	if err := os.Rename(aside, m.data()); err != nil {
		return err
	}
	return r.launch(m)
}

// fill writes until nothing more fits.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return err
		}
	}
	return nil
}

// fsyncError has every fsync of a broker fail until it ends.
func fsyncError(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	log := filepath.Join(m.dir, fmt.Sprintf("strace-%d.log", m.runs))
	r.say("fsync fails in %s", r.describe(m))
	tracer, err := start("strace", log, "strace", "-f", "-q", "-p", strconv.Itoa(m.proc.cmd.Process.Pid), "-e", "trace=fsync,fdatasync",
		"-e", "inject=fsync,fdatasync:error=EIO")
	if err != nil {
		return err
	}
	err = r.noticed(m)
	tracer.signal(syscall.SIGINT)
	if !tracer.await(10 * time.Second) {
		tracer.kill()
	}
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(log)
	if err == nil && !strings.Contains(string(raw), "(INJECTED)") {
		err = fmt.Errorf("strace failed no call, see %s", log)
	}
	if err != nil {
		return err
	}
	return r.launch(m)
}
