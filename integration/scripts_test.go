//go:build integration

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// kafkajs from npm.
func TestKafkaJS(t *testing.T) {
	slow(t)
	kafkaJS(t, shared(t))
}

func kafkaJS(t *testing.T, b *broker, args ...string) {
	t.Helper()
	packageJSON := mustRead("integration/js/package.json")
	dir, err := cached("js", packageJSON, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(packageJSON), 0o644); err != nil {
			return err
		}
		cmd := exec.Command("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("npm install: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, 3*time.Minute, "", append([]string{"env", "NODE_PATH=" + filepath.Join(dir, "node_modules"),
		"node", filepath.Join(repoRoot, "integration/js/cases.js"), b.addr(), topicName(t)}, args...)...)
	reportCases(t, out, err)
}

// confluent-kafka from PyPI: the newest librdkafka.
func TestConfluentKafkaPython(t *testing.T) {
	slow(t)
	pythonCases(t, shared(t), "cases.py")
}

// pythonCases runs a program of cases with the Python clients at hand.
func pythonCases(t *testing.T, b *broker, program string, args ...string) {
	t.Helper()
	dir, err := cached("python", mustRead("integration/python/requirements.txt"), func(dir string) error {
		for _, argv := range [][]string{
			{"python3", "-m", "venv", dir},
			{filepath.Join(dir, "bin/pip"), "install", "-q", "-r", filepath.Join(repoRoot, "integration/python/requirements.txt")},
		} {
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w\n%s", argv, err, out)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, 4*time.Minute, "", append([]string{filepath.Join(dir, "bin/python"), filepath.Join(repoRoot, "integration/python", program), b.addr(), topicName(t)}, args...)...)
	reportCases(t, out, err)
}
