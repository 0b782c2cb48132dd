package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// haste is how long after the first signal another one ends the process at once.
// One that comes with it is the same wish: timeout(1) and some supervisors signal
// the process and then its group.
const haste = time.Second

// untilSignal is a context that ends with the first SIGINT or SIGTERM. One that
// comes later than haste after it ends the process as if nobody had listened.
// stop stops listening.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, over, done := make(chan os.Signal, 8), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(done)
		obey(signals, over, time.Now, cancel, func(s os.Signal) {
			signal.Reset(syscall.SIGINT, syscall.SIGTERM)
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Signal(s)
			}
		})
	}()
	var once sync.Once
	return ctx, func() {
		once.Do(func() {
			signal.Stop(signals)
			close(over)
			<-done
			cancel()
		})
	}
}

// obey calls stop at the first signal, and end at one that comes later than haste
// after that.
func obey(signals <-chan os.Signal, over <-chan struct{}, now func() time.Time, stop func(), end func(os.Signal)) {
	var first time.Time
	for {
		select {
		case s := <-signals:
			switch t := now(); {
			case first.IsZero():
				first = t
				stop()
			case t.Sub(first) > haste:
				end(s)
				return
			}
		case <-over:
			return
		}
	}
}
