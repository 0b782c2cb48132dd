package main

import (
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Signals that come together are one wish to stop; one that comes later is one to
// end at once.
func TestObey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, over := make(chan os.Signal), make(chan struct{})
		var stops int
		var ended os.Signal
		done := make(chan struct{})
		go func() {
			defer close(done)
			obey(signals, over, time.Now, func() { stops++ }, func(s os.Signal) { ended = s })
		}()
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		<-time.After(haste)
		signals <- syscall.SIGINT
		synctest.Wait()
		if stops != 1 || ended != nil {
			t.Errorf("within a second: %d stops, ended by %v; want one stop", stops, ended)
		}
		<-time.After(time.Millisecond)
		signals <- syscall.SIGINT
		<-done
		if stops != 1 || ended != syscall.SIGINT {
			t.Errorf("later: %d stops, ended by %v; want an end by SIGINT", stops, ended)
		}
	})
}

// guarded keeps signals that this test sends from ending the test.
func guarded(t *testing.T) {
	t.Helper()
	c := make(chan os.Signal, 10)
	signal.Notify(c, syscall.SIGTERM)
	t.Cleanup(func() { signal.Stop(c) })
}

func terminate(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Two SIGTERM at once, as by GNU timeout, are a clean stop.
func TestTwoSignalsAtOnce(t *testing.T) {
	guarded(t)
	dir := t.TempDir()
	t.Setenv("KBROKER_DATA", dir)
	done := make(chan error, 1)
	go func() {
		done <- run(t.Context(), "", runOptions{logLevel: "error", overrides: []string{"listeners=PLAINTEXT://127.0.0.1:0"}})
	}()
	var meta []string
	until(t, "it has its directory", func() bool {
		if _, err := os.Stat(filepath.Join(dir, "meta.properties")); err == nil {
			return true
		}
		meta, _ = filepath.Glob(filepath.Join(dir, "*", "meta.properties"))
		return len(meta) > 0
	})
	terminate(t)
	terminate(t)
	if err := <-done; err != nil {
		t.Errorf("it ends with %v", err)
	}
	var marks []string
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".kafka_cleanshutdown") {
			marks = append(marks, path)
		}
		return err
	}); err != nil || len(marks) != 1 {
		t.Errorf("marks of a clean stop: %v, %v", marks, err)
	}
}

// A stop that is asked for while the broker starts is a clean end, whatever it
// waits for.
func TestSignalDuringStart(t *testing.T) {
	guarded(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // a ZooKeeper that does not answer
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "server.properties")
	text := "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=" + dir + "/logs\nzookeeper.connect=" + mute.Addr().String() + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- run(t.Context(), file, runOptions{logLevel: "error"}) }()
	c, err := mute.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	terminate(t)
	if err := <-done; err != nil {
		t.Errorf("it ends with %v", err)
	}
}
