#!/bin/sh
# Made with the keytool of OpenJDK 17; the keys are for tests alone.
set -e
cd "$(dirname "$0")"
make() { # TYPE FILE
	set -- "$1" "$2" "-storepass secretpassword -keypass secretpassword"
	keytool -genkeypair -alias k -keyalg EC -validity 36500 -dname CN=leaf -ext san=dns:leaf -storetype "$1" -keystore "$2" $3
	keytool -exportcert -rfc -alias k -keystore "$2" -storepass secretpassword -file "$2.crt"
	keytool -importcert -noprompt -alias ca -storetype "$1" -keystore "trust-$2" -storepass secretpassword -file "$2.crt"
	rm "$2.crt"
}
make JKS a.jks
make PKCS12 b.p12
cp b.p12 c.jks # as keytool itself names a PKCS12 that it is told to put there
cp trust-b.p12 trust-c.jks
