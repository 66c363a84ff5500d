# placeholder: written by the infra work
native-dev:
	cargo build --profile dev-fast -p roquet-native
	cp target/dev-fast/libroquet_native.so src/roquet/roquet_native.abi3.so
